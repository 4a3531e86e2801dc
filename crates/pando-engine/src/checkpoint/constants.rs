//! Constants of algorithm version 0 that decide bytes. Change one only with a measurement, and with a new version.
//!
//! What a checkpoint writes that changes 1% of the rows: bytes of packs, segments and manifest over `index_bytes` before it,
//! mean of twenty. Generated: 20,000 x 96 (`growth::a_hundredth_writes_less_than_a_tenth_of_the_index`, counted, so it is
//! the same on every machine); minilm: 20,000 x 384 (`measure_growth_by_a_hundredth`).
//!
//! | | generated, new rows | half new, half replaced | replaced | deleted | minilm, new rows | half, half |
//! |---|---|---|---|---|---|---|
//! | append slots cut to their rows, else as before | 16.2% | 16.9% | 23.3% | 13.2% | | |
//! | no padding in append slots, id runs from 8,192 (were 65,536) | 9.9% | 10.6% | 17.9% | 13.1% | | |
//! | dead rows scrubbed by group, not by leaf | 9.9% | 10.3% | 15.5% | 11.4% | 9.1% | 9.1% |
//! | scrubbed from 1/16 to 1/20 (was 5% to 4%), new base at 60% (was 50%) | 9.4% | 8.4% | 12.1% | 9.5% | | |
//!
//! Replaced rows stay over a tenth: a group is written anew when about a ninth of it is dead, which writes nine rows to be rid
//! of one. Index bytes include what packs hold and the root no longer reaches (a fifth to three tenths of them after
//! twenty checkpoints).
//!
//! Of new rows' 0.62 MB, 0.40 MB are codes: 400 copies of new rows (0.05 MB), 620 of rows of split leaves (0.07 MB), and the
//! rest copies of both when deltas are merged (each row about three times) and of bases; segments 0.09 MB, nodes and
//! centroids 0.07 MB, ids 0.04 MB. A third delta would save a fifth of the codes (simulated), at one more part a leaf for
//! each search. In a steady state, over a hundred checkpoints, codes cost 1.6 times what they cost over the first
//! twenty (simulated): bases are written as well.
//!
//! Before, by the same measurement on minilm (96,414 rows, then twenty checkpoints; share of index bytes after each):
//! superseded / delta percent, segment fan 25 / 25, 4: 14.6%; 60 / 60, 4: 13.8%; 100 / 100, 4: 14.4%; 50 / 50, 8: 12.4%; with deltas
//! of one age in packs of their own 13.9% of a smaller index. On its first 24,000 rows every wish to leave granted and segments
//! by 8: 14.4%; leaves keeping rows while under 1/16 of them wants to leave and segments by 32: 13.0%.

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

/// Entries that the lowest level of id runs may hold; each level above holds [`RUN_RATIO`] times as many. It is written anew
/// by every checkpoint: at 65,536 a collection of 50,000 wrote all its ids each time, 4% of the index.
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
