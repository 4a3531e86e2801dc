//! Bytes on storage: log entries, segments, packs, blocks, manifests. No I/O, no async.
//!
//! * Small objects (record, entry, plan, head, name, tag, manifest, …) are structs that implement
//!   [`Stored`]: `encode()` gives the bytes, `decode()` checks envelope, checksum and rules.
//! * Index blocks are columns in aligned sections, decoded into views over [`AlignedBytes`].
//! * Segments are Arrow IPC files with a side block that places every row ([`SegmentSide`]).
//! * [`Rows`] holds records in memory and converts from and to Arrow.
//!
//! Decoders accept any input without a panic, take memory only after a length was checked against the
//! bytes at hand, and say in a [`FormatError`] which kind of object is damaged.

mod aligned;
mod arrow_message;
mod block;
mod codec;
mod deaths;
mod envelope;
mod error;
mod id_run;
mod ids;
mod object;
mod pack;
mod row_set;
mod rows;
mod segment;
mod value;
mod window;

pub use aligned::AlignedBytes;
pub use block::centroids::{Centroids, encode_centroids};
pub use block::codes::{NodeCodes, NodeCodesParts, encode_node_codes};
pub use block::leaf::{
    DecodedLeafBlock, LeafSlot, RefineParts, SlotParts, encode_leaf_block, encode_refine_block,
};
pub use block::packed::{fill_up, packed_len};
pub use block::refine::{DecodedRefineBlock, RefineLayout, RefineSlot};
pub use block::refs::{
    GroupBlock, InnerChild, LeafChild, LeafPlace, MAX_GROUP_BLOCKS, NodeChildren, NodeRefs,
};
pub use block::slots::{SlotIndex, SlotKind, SlotPlace};
pub use deaths::DeathBlock;
pub use envelope::{FORMAT_VERSION, Stored, StoredParts};
pub use error::{FormatError, InputError, ObjectKind};
pub use id_run::{
    ID_BLOCK_BYTES, ID_BLOCKS_PER_PART, IdBlock, IdFilter, IdIndex, IdIndexEntry, IdRunBuilder, IdView,
    PendingIdRun, encode_id_block, merge_ids,
};
pub use ids::{
    BlockRef, CollectionUuid, Hash, MAX_ID_BYTES, Nonce, Number, ObjectRef, ParseError, RecordId, RootId,
    id_hash, id_hash_str, id_hash_u64, row_fingerprint,
};
pub use object::config::{
    Ancestor, CollectionConfig, CollectionRecord, ForkPoint, MAX_DIMENSION, padded_dim,
};
pub use object::entry::{
    Body, BodyName, BodyPlace, Entry, KeyRecord, MAX_AIM_DISTANCE, MAX_ENTRY_BYTES, MAX_INLINE_BODY,
    MAX_KEY_BYTES, Operation, Outcome,
};
pub use object::head::{Closing, Head, HeadRoot};
pub use object::manifest::{
    AttributeIndexEntry, Calibration, Counts, DeathChunk, DeathDelta, Deaths, Fingerprints, IdKind, IdRun,
    IdRunPart, Manifest, PackEntry, PackKind, SegmentEntry, TopNode, TreeInfo, WindowEntry,
};
pub use object::names::{NameRecord, PinRecord, RootRef, SweepRecord, TagRecord, check_collection_name};
pub use object::plan::{ALGORITHM_VERSION, Plan, PlanContents};
pub use pack::{BLOCK_ALIGNMENT, PackSummary, PackWriter, Placed, check_pack_header};
pub use pando_kernels::Metric;
pub use row_set::{RowSet, chunk_of, encode_row_set};
pub use rows::{Column, Rows, RowsBuilder, check_vector};
pub use segment::{
    BatchPlace, PAGE_BYTES, SegmentBatch, SegmentPayload, SegmentSide, SegmentSummary, SegmentWriter,
    rows_per_batch,
};
pub use value::{
    AttributeField, AttributeSchema, AttributeType, MAX_ATTRIBUTE_BYTES, MAX_ATTRIBUTE_NAME, MAX_ATTRIBUTES,
    Value, canonical_f64, check_name,
};
pub use window::{WINDOW_KEYS, WindowBlock, WindowKey, WindowNonce};
