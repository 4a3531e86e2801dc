//! Codes of a node's children: 4-bit centroid codes and four constants each, for navigation.
//!
//! Header counts: 0 children n, 1 padded dimension. Sections: codes (n × padded/2), w, add, r2, extra (f32[n]).

use std::ops::Range;
use std::sync::Arc;

use crate::aligned::AlignedBytes;
use crate::block::{BlockReader, BlockWriter, cast};
use crate::error::{FormatError, ObjectKind};

/// What a codes block is made of. All slices have one item (or code) a child.
#[derive(Clone, Copy, Debug)]
pub struct NodeCodesParts<'a> {
    /// Padded dimension, a multiple of 64.
    pub padded: usize,
    /// 4-bit codes, row-major, padded/2 bytes a child.
    pub codes: &'a [u8],
    /// Scale of the code in the estimate.
    pub w: &'a [f32],
    /// Constant term of the estimate (squared norm, or inner product with the mean).
    pub add: &'a [f32],
    /// Mean squared radius of the child.
    pub r2: &'a [f32],
    /// Free for the metric: the centroid's norm for dot, else 0.
    pub extra: &'a [f32],
}

/// Encodes a codes block.
pub fn encode_node_codes(parts: &NodeCodesParts<'_>) -> Result<Vec<u8>, FormatError> {
    let n = parts.w.len();
    let invalid = |what: &str| FormatError::invalid(ObjectKind::NodeCodes, what);
    if [parts.add.len(), parts.r2.len(), parts.extra.len()] != [n; 3]
        || parts.codes.len() != n * (parts.padded / 2)
    {
        return Err(invalid("its columns have different lengths"));
    }
    check_padded(parts.padded).map_err(invalid)?;
    let n = u32::try_from(n).map_err(|_| invalid("it has too many children"))?;
    let mut w = BlockWriter::new(ObjectKind::NodeCodes, &[n, parts.padded as u32]);
    w.bytes(parts.codes);
    for column in [parts.w, parts.add, parts.r2, parts.extra] {
        w.f32s(column);
    }
    Ok(w.finish())
}

pub(crate) fn check_padded(padded: usize) -> Result<(), &'static str> {
    if padded >= 128 && padded.is_multiple_of(64) && padded <= crate::MAX_DIMENSION as usize {
        Ok(())
    } else {
        Err("its padded dimension is not valid")
    }
}

/// A decoded codes block. Slices are views into its bytes.
#[derive(Clone, Debug)]
pub struct NodeCodes {
    bytes: Arc<AlignedBytes>,
    padded: usize,
    codes: Range<usize>,
    columns: [Range<usize>; 4],
}

impl NodeCodes {
    /// Checks the block's layout. The bytes' hash is checked by whoever read them.
    pub fn decode(bytes: Arc<AlignedBytes>) -> Result<Self, FormatError> {
        let mut r = BlockReader::new(ObjectKind::NodeCodes, 2, &bytes)?;
        let (n, padded) = (r.count(0) as usize, r.count(1) as usize);
        check_padded(padded).map_err(|what| r.damaged(what))?;
        let codes = r.section(n, padded / 2)?;
        let columns = [r.section(n, 4)?, r.section(n, 4)?, r.section(n, 4)?, r.section(n, 4)?];
        r.end()?;
        Ok(Self { padded, codes, columns, bytes })
    }

    /// Number of children.
    pub fn len(&self) -> usize {
        self.columns[0].len() / 4
    }

    /// True without children.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Padded dimension.
    pub fn padded(&self) -> usize {
        self.padded
    }

    /// 4-bit codes, row-major, padded/2 bytes a child.
    pub fn codes(&self) -> &[u8] {
        &self.bytes[self.codes.clone()]
    }

    fn column(&self, i: usize) -> &[f32] {
        cast(&self.bytes[self.columns[i].clone()])
    }

    /// Scales.
    pub fn w(&self) -> &[f32] {
        self.column(0)
    }

    /// Constant terms.
    pub fn add(&self) -> &[f32] {
        self.column(1)
    }

    /// Mean squared radii.
    pub fn r2(&self) -> &[f32] {
        self.column(2)
    }

    /// The metric's own constants.
    pub fn extra(&self) -> &[f32] {
        self.column(3)
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.bytes.capacity()
    }
}
