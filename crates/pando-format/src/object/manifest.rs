//! Manifest: the root. Everything of one version of a collection is reachable from it.

use bytes::Bytes;

use crate::block::codes::NodeCodes;
use crate::block::refs::NodeRefs;
use crate::codec::{Bad, code, record};
use crate::envelope::stored;
use crate::error::FormatError;
use crate::ids::{BlockRef, ObjectRef, RootId};
use crate::object::config::CollectionConfig;
use crate::object::plan::PlanContents;
use crate::value::AttributeSchema;

/// Kinds of blocks, one pack each and checkpoint (leaves first).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PackKind {
    /// Leaf blocks (codes).
    Leaves,
    /// Refine blocks.
    Refine,
    /// Node references and codes.
    Nodes,
    /// Full-precision centroids.
    Centroids,
    /// Id blocks and indexes.
    Ids,
    /// Deaths, write windows, segment side blocks.
    Side,
    /// Attribute indexes.
    Attributes,
    /// Several kinds in one pack: small collections.
    Mixed,
}

code!(PackKind {
    PackKind::Leaves = 1,
    PackKind::Refine = 2,
    PackKind::Nodes = 3,
    PackKind::Centroids = 4,
    PackKind::Ids = 5,
    PackKind::Side = 6,
    PackKind::Attributes = 7,
    PackKind::Mixed = 8,
});

record! {
    /// A pack that the root reaches.
    #[derive(Copy, Eq)]
    pub struct PackEntry {
        /// The pack.
        pub object: ObjectRef,
        /// What it holds.
        pub kind: PackKind,
        /// Its length.
        pub bytes: u64,
        /// Bytes of its blocks that this root reaches, padding left out.
        pub live_bytes: u64,
    }
}

record! {
    /// An attribute index of a segment.
    #[derive(Eq)]
    pub struct AttributeIndexEntry {
        /// The attribute.
        pub name: String,
        /// Kind of index; given by the index's own version of this format.
        pub kind: u8,
        /// Its block.
        pub block: BlockRef,
    }
}

record! {
    /// A segment that the root reaches.
    #[derive(Eq)]
    pub struct SegmentEntry {
        /// The segment.
        pub object: ObjectRef,
        /// Its length.
        pub bytes: u64,
        /// Rows in it, dead ones included.
        pub rows: u64,
        /// Rows in it that are live in this root.
        pub live_rows: u64,
        /// Its first row number.
        pub first_row: u64,
        /// Its last row number.
        pub last_row: u64,
        /// Places and page checksums ([`crate::SegmentSide`]).
        pub side: BlockRef,
        /// Attribute indexes, sorted by name and kind.
        pub indexes: Vec<AttributeIndexEntry>,
    }
}

/// Kind of ids in a run. The orders are separate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IdKind {
    /// Integers, ascending.
    U64,
    /// Strings, ascending by bytes.
    Str,
}

code!(IdKind { IdKind::U64 = 1, IdKind::Str = 2 });

record! {
    /// A part of an id run: up to 64 id blocks under one index block.
    #[derive(Eq)]
    pub struct IdRunPart {
        /// Smallest id in it.
        pub first: crate::ids::RecordId,
        /// Largest id in it.
        pub last: crate::ids::RecordId,
        /// Ids in it.
        pub ids: u64,
        /// Its index and filters ([`crate::IdIndex`]).
        pub index: BlockRef,
        /// Bytes of its id blocks.
        pub bytes: u64,
    }
}

record! {
    /// A run: ids sorted, each with its row. Where runs hold the same id, the lowest level counts, within a
    /// level the run listed last.
    #[derive(Eq)]
    pub struct IdRun {
        /// Kind of ids.
        pub kind: IdKind,
        /// Level: 0 is the newest.
        pub level: u8,
        /// Ids in it.
        pub ids: u64,
        /// Its parts, in order of ids.
        pub parts: Vec<IdRunPart>,
    }
}

record! {
    /// A chunk of dead rows: row numbers with this `row >> 16`.
    #[derive(Copy, Eq)]
    pub struct DeathChunk {
        /// `row >> 16`.
        pub chunk: u64,
        /// Dead rows in it.
        pub rows: u32,
        /// Its block ([`crate::DeathBlock`]).
        pub block: BlockRef,
    }
}

record! {
    /// Dead rows of one checkpoint that are not folded into chunks yet.
    #[derive(Copy, Eq)]
    pub struct DeathDelta {
        /// Dead rows in it.
        pub rows: u64,
        /// Its block ([`crate::DeathBlock`]).
        pub block: BlockRef,
    }
}

record! {
    /// Dead rows still in leaves or segments: the union of chunks and deltas.
    #[derive(Eq, Default)]
    pub struct Deaths {
        /// By chunk number.
        pub chunks: Vec<DeathChunk>,
        /// In order of checkpoints.
        pub deltas: Vec<DeathDelta>,
    }
}

record! {
    /// A block of recent nonces and idempotency keys.
    #[derive(Copy, Eq)]
    pub struct WindowEntry {
        /// First log entry in it.
        pub first_sequence: u64,
        /// Last log entry in it.
        pub last_sequence: u64,
        /// Nonces in it.
        pub nonces: u32,
        /// Keys in it.
        pub keys: u32,
        /// Its block ([`crate::WindowBlock`]).
        pub block: BlockRef,
    }
}

record! {
    /// Counts of rows in this root.
    #[derive(Copy, Eq, Default)]
    pub struct Counts {
        /// Live rows.
        pub live: u64,
        /// Dead rows in the deaths (still in a leaf or a segment).
        pub dead: u64,
        /// Dead rows whose primary is still in a leaf.
        pub dead_primaries: u64,
        /// Dead rows whose secondary is still in a leaf.
        pub dead_secondaries: u64,
        /// Primaries in all leaves: `live + dead_primaries`.
        pub primaries: u64,
        /// Secondaries in all leaves.
        pub secondaries: u64,
        /// Rows of the log up to the root's sequence.
        pub cumulative_rows: u64,
        /// Bytes of the log up to the root's sequence.
        pub cumulative_bytes: u64,
    }
}

record! {
    /// Wrapping sums of row fingerprints. `primaries` must equal `live + dead_primaries`.
    #[derive(Copy, Eq, Default)]
    pub struct Fingerprints {
        /// Live rows.
        pub live: u128,
        /// Dead rows whose primary is still in a leaf.
        pub dead_primaries: u128,
        /// Primaries in all leaves.
        pub primaries: u128,
        /// Secondaries in all leaves.
        pub secondaries: u128,
    }
}

record! {
    /// Stopping margins by k and recall target: row-major, `ks.len() * targets.len()` margins.
    #[derive(Default)]
    pub struct Calibration {
        /// Live rows when it was computed.
        pub rows: u64,
        /// Rows changed since then (added or died).
        pub changed: u64,
        /// k, ascending.
        pub ks: Vec<u32>,
        /// Recall targets in parts of a million, ascending.
        pub targets: Vec<u32>,
        /// Margins.
        pub margins: Vec<f32>,
    }
}

record! {
    /// The top node, inline.
    pub struct TopNode {
        /// Children's references. Level 1 when the top is itself a group.
        pub refs: NodeRefs,
        /// Bytes of the children's codes block.
        pub codes: Bytes,
        /// Children's full-precision centroids, a block for the compactor.
        pub centroids: BlockRef,
    }
}

impl TopNode {
    /// The children's codes.
    pub fn decode_codes(&self) -> Result<NodeCodes, FormatError> {
        NodeCodes::decode(std::sync::Arc::new(self.codes.as_ref().into()))
    }
}

record! {
    /// The tree.
    pub struct TreeInfo {
        /// Leaves with more live primaries are split.
        pub split_size: u32,
        /// Mean of the prepared vectors at the (re)build, `dim` elements.
        pub mean: Vec<f32>,
        /// Thresholds of norm bands (dot only).
        pub bands: Vec<f32>,
        /// Next free id of leaves and nodes.
        pub next_id: u64,
        /// Group id from which the next scrub goes on.
        pub scrub_cursor: u64,
        /// Levels, leaves included: 2 when the top is a group.
        pub levels: u8,
        /// Leaves.
        pub leaves: u64,
        /// Live rows at the last (re)build.
        pub rows_at_build: u64,
        /// Stopping margins.
        pub calibration: Calibration,
        /// The top node.
        pub top: TopNode,
    }
}

record! {
    /// A root. Its id is the BLAKE3 of its encoded bytes.
    pub struct Manifest {
        /// Version of the algorithm that made it.
        pub algorithm: u32,
        /// The collection's configuration.
        pub config: CollectionConfig,
        /// Parent's depth plus one.
        pub depth: u64,
        /// The root it was built on; None for the first.
        pub parent: Option<RootId>,
        /// The plan carried out.
        pub plan: PlanContents,
        /// Last log entry covered: the plan's end.
        pub sequence: u64,
        /// Row number that the next entry must begin with.
        pub next_row: u64,
        /// Counts of rows.
        pub counts: Counts,
        /// Fingerprints of rows.
        pub fingerprints: Fingerprints,
        /// The tree; None while there is no row in any leaf.
        pub tree: Option<TreeInfo>,
        /// Packs, sorted by object.
        pub packs: Vec<PackEntry>,
        /// Segments, in row order.
        pub segments: Vec<SegmentEntry>,
        /// Id runs: integers before strings, then level ascending, then oldest first.
        pub id_runs: Vec<IdRun>,
        /// Dead rows.
        pub deaths: Deaths,
        /// Attribute types seen so far in the log.
        pub attributes: AttributeSchema,
        /// Recent nonces and keys, in order of sequence.
        pub window: Vec<WindowEntry>,
    }
}

impl Manifest {
    /// Number of leaves.
    pub fn leaf_count(&self) -> u64 {
        self.tree.as_ref().map_or(0, |t| t.leaves)
    }

    /// Levels, leaves included; 0 without a tree.
    pub fn levels(&self) -> u32 {
        self.tree.as_ref().map_or(0, |t| u32::from(t.levels))
    }

    /// Bytes of all packs.
    pub fn index_bytes(&self) -> u64 {
        self.packs.iter().map(|p| p.bytes).sum()
    }

    /// Bytes of all segments.
    pub fn segment_bytes(&self) -> u64 {
        self.segments.iter().map(|s| s.bytes).sum()
    }

    /// The segment whose range of row numbers holds `row`.
    pub fn segment_of(&self, row: u64) -> Option<&SegmentEntry> {
        let at = self.segments.partition_point(|s| s.last_row < row);
        self.segments.get(at).filter(|s| s.first_row <= row)
    }

    fn check(&self) -> Result<(), Bad> {
        self.config.rules()?;
        if self.depth == 0 || (self.depth == 1) != self.parent.is_none() {
            return Err("depth and parent do not fit");
        }
        if self.sequence != self.plan.end_sequence || self.algorithm != self.plan.algorithm {
            return Err("it does not agree with its plan");
        }
        let (c, f) = (&self.counts, &self.fingerprints);
        if Some(c.primaries) != c.live.checked_add(c.dead_primaries)
            || f.primaries != f.live.wrapping_add(f.dead_primaries)
        {
            return Err("its primaries are not its live and dead rows");
        }
        if !self.packs.is_sorted_by(|a, b| a.object < b.object) {
            return Err("its packs are not in order");
        }
        if self.packs.iter().any(|p| p.object.depth > self.depth || p.live_bytes > p.bytes) {
            return Err("a pack is deeper than the root or has more live bytes than bytes");
        }
        if !self.segments.is_sorted_by(|a, b| a.last_row < b.first_row) {
            return Err("its segments are not in row order");
        }
        for s in &self.segments {
            let span = s.last_row.checked_sub(s.first_row).ok_or("a segment's rows are not in order")?;
            if s.object.depth > self.depth || s.rows == 0 || s.live_rows > s.rows || s.rows - 1 > span {
                return Err("a segment's counts do not fit");
            }
            if s.last_row >= self.next_row {
                return Err("a segment holds rows past the root's");
            }
        }
        if !self.id_runs.is_sorted_by(|a, b| (a.kind, a.level) <= (b.kind, b.level)) {
            return Err("its id runs are not in order");
        }
        if !self.deaths.chunks.is_sorted_by(|a, b| a.chunk < b.chunk) {
            return Err("its chunks of dead rows are not in order");
        }
        if !self.window.is_sorted_by(|a, b| a.last_sequence < b.first_sequence) {
            return Err("its write windows are not in order");
        }
        match &self.tree {
            Some(tree) => self.check_tree(tree),
            None if c.primaries == 0 && c.secondaries == 0 => Ok(()),
            None => Err("it has rows in leaves and no tree"),
        }
    }

    fn check_tree(&self, tree: &TreeInfo) -> Result<(), Bad> {
        if tree.mean.len() != self.config.dim as usize {
            return Err("its mean does not have the dimension");
        }
        let table = &tree.calibration;
        if Some(table.margins.len()) != table.ks.len().checked_mul(table.targets.len()) {
            return Err("its calibration table has another size");
        }
        if u32::from(tree.levels) != u32::from(tree.top.refs.level) + 1 {
            return Err("its levels are not those of its top node");
        }
        Ok(())
    }
}

stored!(Manifest, Manifest, Manifest::check);
