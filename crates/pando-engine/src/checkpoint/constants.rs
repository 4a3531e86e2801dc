//! Constants of algorithm version 0 that decide bytes. Change one only with a measurement, and with a new version.
//!
//! Measured with `measure_growth_by_a_hundredth` (minilm-wordnet, 96,414 rows of 384 dimensions, then twenty checkpoints
//! of 1% each; share of the index's bytes written by one, segments included):
//!
//! | superseded / delta percent, segment fan | mean written | index bytes over live bytes at the end |
//! |---|---|---|
//! | 25 / 25, 4 | 14.6% | 2.0 |
//! | 60 / 60, 4 | 13.8% | 2.1 |
//! | 100 / 100, 4 | 14.4% | 1.8 |
//! | 50 / 50, 8 | 12.4% | 2.6 |
//! | 50 / 50, 8, deltas of one age in packs of their own | 13.9% (of a smaller index) | 1.2 |
//!
//! Today the fan is 32 and a leaf keeps rows that want to leave while they are under 1/16 of it: on 24,000 of these rows
//! (20,000, then twenty times 200) 13.0% instead of 14.4%; not measured again on the whole set.
//!
//! Half of what is written are codes that the tree's rounds make anew (2 to 4% of all rows a checkpoint, three quarters of
//! them in neighbours of a split leaf that lost a few rows); the rest are codes copied when deltas and bases are merged.
//!
//! Since then leaves of which less than a sixteenth wants to leave keep their rows, and segments are merged by 32. The same
//! measurement on the first 24,000 rows (20,000, then twenty times 200; index 12 MB, 1% of it are 0.12 MB):
//!
//! | | packs a checkpoint | segments | all, mean | index bytes over live ones at the end |
//! |---|---|---|---|---|
//! | every wish to leave granted, segments by 8 | 0.8 to 5.5 MB | 0.32 MB, twice 2.5 MB | 14.4% | 1.4 |
//! | as it is | 0.8 to 3.4 MB | 0.32 MB | 13.0% | 1.25 |
//!
//! What is left, 0.8 MB where no leaf splits, is mostly padding: 400 copies go to some 260 leaves, and an append slot of one
//! or two rows takes a whole block of 32 rows of 1-bit codes (1.5 KB at 384 dimensions instead of 48 bytes a row). Every merge
//! of deltas carries it along. Open: store the last block of an append slot without the rows that are not there, and fill it up
//! when the block is decoded (`calibrate/leaves.rs` reads spans of stored bytes and has to know).

/// A plan covers at most so many rows …
pub const PLAN_ROWS: u64 = 4_194_304;
/// … or so many bytes of entries, but always at least one entry.
pub const PLAN_BYTES: u64 = 16 << 30;

/// A merged segment holds at most so many rows.
pub const SEGMENT_ROWS: u64 = 4_194_304;
/// So many neighbouring segments of one size tier are merged.
pub const SEGMENT_FAN: usize = 32;
/// The segments of a small collection are merged into one at every checkpoint while their vectors stay below this.
pub const SMALL_SEGMENT_BYTES: u64 = 64 << 20;

/// A pack is closed when it has so many bytes.
pub const PACK_BYTES: u64 = 64 << 20;

/// Entries that the lowest level of id runs may hold; each level above holds [`RUN_RATIO`] times as many.
pub const RUN_BASE: u64 = 8_192;
/// Ratio of neighbouring levels of id runs.
pub const RUN_RATIO: u64 = 10;

/// Nonces and idempotency keys that a root remembers.
pub const WINDOW: u64 = 65_536;

/// A group gets a new base block when its deltas hold more than this share of the base's rows (in percent) …
pub const DELTA_PERCENT: u64 = 60;
/// … or when this share of the base's rows (in percent) belongs to leaves that a delta supersedes.
pub const SUPERSEDED_PERCENT: u64 = 60;
/// The newer delta is merged into the older one when it has more than this share of the older one's rows (in percent).
pub const DELTA_MERGE_PERCENT: u64 = 50;

/// Blocks in packs of which less than this share is live (in percent) are moved …
pub const CONDEMN_PERCENT: u64 = 50;
/// … but at most this part of the index at one checkpoint …
pub const MOVE_PART: u64 = 24;
/// … or so many bytes, whichever is more.
pub const MOVE_BYTES: u64 = 4 << 20;

/// Deltas of dead rows are folded into chunks when there are so many.
pub const DEATH_DELTAS: usize = 8;
/// The newest block of the write window is written again with the new entries while both have at most so many items.
pub const WINDOW_BLOCK: u64 = 4096;

/// The calibration is computed again when one in so many rows changed since the last time.
pub const CALIBRATE_PART: u64 = 10;
