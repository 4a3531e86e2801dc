//! What services ask of the engine, in plain types: no wire messages, no storage formats beyond ids and values.
//!
//! Distances are the contract's: `l2` = squared Euclidean, `cosine` = 1 − cos, `dot` = −inner product; lower is closer.

use std::collections::BTreeMap;
use std::time::Duration;

pub use pando_format::{AttributeType, RecordId, RootId, Rows, Value};
pub use pando_kernels::Metric;
use uuid::Uuid;

/// What a collection is made with; nothing of it can be changed later.
#[derive(Clone, Debug, PartialEq)]
pub struct CreateCollection {
    /// `[a-z0-9][a-z0-9._-]{0,127}`.
    pub name: String,
    /// 1 to 16,384.
    pub dimension: u32,
    /// Distance.
    pub metric: Metric,
    /// 1 or 2: whether rows get a secondary leaf.
    pub copies: u8,
    /// Whether leaves carry four more bits per dimension.
    pub refine: bool,
    /// Seeds rotation and clustering.
    pub seed: u64,
    /// Up to so many live rows the index is one leaf.
    pub small_limit: u64,
    /// How long log entries that a root covers are kept.
    pub log_retention: Duration,
}

impl CreateCollection {
    /// A collection with the defaults of DESIGN.md section 11.
    pub fn new(name: impl Into<String>, dimension: u32, metric: Metric) -> Self {
        Self {
            name: name.into(),
            dimension,
            metric,
            copies: 2,
            refine: true,
            seed: 0,
            small_limit: 10_000,
            log_retention: Duration::from_secs(3600),
        }
    }
}

/// A collection as `describe` shows it.
#[derive(Clone, Debug)]
pub struct CollectionDescription {
    /// Its configuration.
    pub config: CreateCollection,
    /// Its identity; a dropped and recreated name has a new one.
    pub uuid: Uuid,
    /// Live records at `sequence` (root and tail).
    pub records: u64,
    /// Newest root, `None` before the first checkpoint.
    pub root: Option<RootId>,
    /// Newest head's number; 0 before the first.
    pub generation: u64,
    /// Last log entry seen.
    pub sequence: u64,
    /// Rows in log entries past the root.
    pub tail_records: u64,
    /// Leaves of the root's tree.
    pub leaves: u64,
    /// Levels of the root's tree, leaves included; 0 without a root.
    pub levels: u32,
    /// Bytes of packs that the root reaches.
    pub index_bytes: u64,
    /// Bytes of segments that the root reaches.
    pub segment_bytes: u64,
    /// Attribute names and types seen so far.
    pub attributes: BTreeMap<String, AttributeType>,
}

/// One published root.
#[derive(Clone, Debug)]
pub struct RootDescription {
    /// Its head's number.
    pub generation: u64,
    /// BLAKE3 of the manifest.
    pub root: RootId,
    /// The last log entry it covers.
    pub sequence: u64,
    /// Parent's depth plus one.
    pub depth: u64,
    /// Live records.
    pub records: u64,
    /// Whether it can still be read.
    pub readable: bool,
}

/// A read-your-writes token: everything up to `sequence` of the collection `uuid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// Collection.
    pub uuid: Uuid,
    /// Log entry.
    pub sequence: u64,
}

/// How fresh an answer must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Consistency {
    /// Sees every write acknowledged before the query arrived.
    #[default]
    Strong,
    /// No probe of the log: entries that this node knows.
    Eventual,
    /// At least this position.
    AtLeast(Token),
}

/// Which version to read.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum At {
    /// The newest.
    #[default]
    Now,
    /// Exactly this root, without the tail.
    Root(RootId),
}

/// Outcome of a write that is durable.
#[derive(Clone, Debug)]
pub struct WriteOutcome {
    /// Read-your-writes token.
    pub token: Token,
    /// Distinct records written (upsert) or found and deleted (delete).
    pub affected: u64,
}

/// How much work a query may do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effort {
    /// Expected recall, 0.80 to 1.0; 1.0 is full effort and exact.
    RecallTarget(f32),
    /// A plain bound on leaves scanned.
    Leaves(u32),
}

impl Default for Effort {
    fn default() -> Self {
        Effort::RecallTarget(0.95)
    }
}

/// Which parts of a record an answer carries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Include {
    /// The original vector.
    pub vector: bool,
    /// Attributes.
    pub attributes: IncludeAttributes,
}

/// Which attributes an answer carries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum IncludeAttributes {
    /// None.
    #[default]
    None,
    /// Every one.
    All,
    /// Those of these names.
    Named(Vec<String>),
}

/// A search for one or many vectors.
#[derive(Clone, Debug)]
pub struct QueryRequest {
    /// Collection name.
    pub collection: String,
    /// Query vectors, each of the collection's dimension.
    pub vectors: Vec<Vec<f32>>,
    /// 1 to 10,000.
    pub top_k: u32,
    /// What matches carry.
    pub include: Include,
    /// Freshness.
    pub consistency: Consistency,
    /// Version.
    pub at: At,
    /// `true`: compare with every row.
    pub exact: bool,
    /// Effort of an approximate search.
    pub effort: Effort,
    /// Width of the error bounds, in standard deviations; unless said 1.9, 1.6 for recall targets up to 0.96, 2.5
    /// above 0.99.
    pub epsilon: Option<f32>,
}

/// A record as answers carry it.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Id.
    pub id: RecordId,
    /// Original vector, where asked for.
    pub vector: Option<Vec<f32>>,
    /// Attributes asked for; absent ones are left out.
    pub attributes: BTreeMap<String, Value>,
}

/// One result.
#[derive(Clone, Debug, PartialEq)]
pub struct Match {
    /// The record.
    pub record: Record,
    /// Distance by the collection's metric.
    pub distance: f64,
}

/// How an answer was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Tree, codes, re-rank.
    Approximate,
    /// Every row compared.
    Exact,
}

/// Work done for one query vector (law 7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Leaves opened.
    pub leaves_scanned: u64,
    /// 1-bit codes compared, tail included.
    pub codes_scanned: u64,
    /// Codes refined with four more bits.
    pub codes_refined: u64,
    /// Vectors compared at full precision.
    pub vectors_reranked: u64,
    /// Tail rows among the codes scanned.
    pub tail_rows: u64,
}

/// The answer for one query vector.
#[derive(Clone, Debug)]
pub struct QueryAnswer {
    /// Best first; ties by id.
    pub matches: Vec<Match>,
    /// Root answered from, if any.
    pub root: Option<RootId>,
    /// Position answered from.
    pub token: Token,
    /// `false` only where a budget or deadline stopped the search.
    pub complete: bool,
    /// Why not complete.
    pub incomplete_reason: Option<String>,
    /// How it was found.
    pub method: Method,
    /// Work done.
    pub work: Work,
    /// Time in the engine.
    pub latency: Duration,
}

/// The answer to a fetch: one item per id asked for, in the order asked for.
#[derive(Clone, Debug)]
pub struct FetchAnswer {
    /// `None`: no such record.
    pub records: Vec<Option<Record>>,
    /// Root answered from.
    pub root: Option<RootId>,
    /// Position answered from.
    pub token: Token,
}

/// A page of a scan: records in id order (u64 before strings).
#[derive(Clone, Debug)]
pub struct ScanPage {
    /// Records.
    pub records: Vec<Record>,
    /// Root answered from.
    pub root: Option<RootId>,
    /// Position; the same for every page of one scan.
    pub token: Token,
}

/// The answer to a count.
#[derive(Clone, Copy, Debug)]
pub struct CountAnswer {
    /// Live records.
    pub count: u64,
    /// Root answered from.
    pub root: Option<RootId>,
    /// Position answered from.
    pub token: Token,
}

/// What a compaction came to.
#[derive(Clone, Debug)]
pub struct CompactOutcome {
    /// The newest root afterwards; `None` for a collection without any write.
    pub root: Option<RootId>,
    /// Its head.
    pub generation: u64,
    /// The last log entry it covers.
    pub sequence: u64,
    /// Whether this call made a new root.
    pub published: bool,
}

/// Recall of approximate against exact search at one position.
#[derive(Clone, Debug)]
pub struct RecallReport {
    /// Queries run.
    pub queries: u64,
    /// k.
    pub top_k: u32,
    /// Mean over queries.
    pub mean: f64,
    /// Fifth percentile.
    pub p5: f64,
    /// Worst query.
    pub min: f64,
}

/// What `verify` found.
#[derive(Clone, Debug)]
pub struct VerifyReport {
    /// No problem found.
    pub ok: bool,
    /// Root verified.
    pub root: Option<RootId>,
    /// Live records of the root.
    pub records: u64,
    /// Blocks read and checked.
    pub blocks: u64,
    /// What is wrong, in words.
    pub problems: Vec<String>,
}

/// What a collection of garbage came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GarbageReport {
    /// Nothing was deleted: "deleted" says what would be.
    pub dry_run: bool,
    /// The head that the sweep began with; 0 if there was none.
    pub generation: u64,
    /// Objects of roots deeper than this were left alone: they may belong to a root in the making.
    pub up_to_depth: u64,
    /// Log entries up to this one may be deleted.
    pub log_floor: u64,
    /// Roots kept because they are the newest or were so within the retention.
    pub recent_roots: u64,
    /// Older roots kept because a tag or a pin names them.
    pub held_roots: u64,
    /// By kind of object, in a fixed order; kinds without objects are left out.
    pub kinds: Vec<GarbageOfKind>,
    /// Objects that storage did not delete this time; the next sweep tries again.
    pub failed: u64,
}

impl GarbageReport {
    /// Objects deleted, and their bytes.
    pub fn deleted(&self) -> (u64, u64) {
        self.kinds.iter().fold((0, 0), |(n, bytes), k| (n + k.deleted, bytes + k.deleted_bytes))
    }

    /// Objects kept, and their bytes.
    pub fn kept(&self) -> (u64, u64) {
        self.kinds.iter().fold((0, 0), |(n, bytes), k| (n + k.kept, bytes + k.kept_bytes))
    }
}

/// Objects of one kind, as a collection of garbage found them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GarbageOfKind {
    /// The kind.
    pub kind: pando_store::ObjectKind,
    /// Objects deleted.
    pub deleted: u64,
    /// Their bytes.
    pub deleted_bytes: u64,
    /// Objects left.
    pub kept: u64,
    /// Their bytes.
    pub kept_bytes: u64,
}

/// Progress of long work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is being done, for people: "routing rows", "writing leaves".
    pub stage: String,
    /// Done so far.
    pub done: u64,
    /// Of how many; 0 where unknown.
    pub total: u64,
}
