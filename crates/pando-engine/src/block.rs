//! What the block cache holds: verified and, where it pays, decoded.

use std::sync::Arc;

use bytes::Bytes;
use pando_format::{
    AlignedBytes, DecodedLeafBlock, DecodedRefineBlock, IdBlock, IdIndex, Rows, SegmentPayload,
};

/// A cached block. Cheap to clone.
#[derive(Clone, Debug)]
pub enum Block {
    /// A leaf block, or a slot of one alone.
    Leaf(Arc<DecodedLeafBlock>),
    /// A refine block, or a slot of one alone.
    Refine(Arc<DecodedRefineBlock>),
    /// A page of a segment, or the byte range of a batch's ids.
    Bytes(Bytes),
    /// The vectors of a batch of a segment.
    Vectors(Arc<AlignedBytes>),
    /// Ids and attributes of a batch of a segment.
    Payload(Arc<SegmentPayload>),
    /// Ids and rows of an id run.
    Ids(Arc<IdBlock>),
    /// Index and filters of an id run.
    IdIndex(Arc<IdIndex>),
    /// Rows of a log entry's body that the tail no longer holds.
    Rows(Arc<Rows>),
}

/// The engine's block cache.
pub type Cache = pando_store::BlockCache<Block, crate::error::Error>;
