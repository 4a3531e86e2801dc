//! Which segments a checkpoint merges: a pure function of the segments' counts.

use std::ops::Range;

use super::constants::{SEGMENT_FAN, SEGMENT_ROWS, SMALL_SEGMENT_BYTES};

/// What the rule looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentSize {
    /// Rows stored in it.
    pub rows: u64,
    /// Of these, rows that would not be written again: dead, and in no leaf.
    pub droppable: u64,
}

impl SegmentSize {
    fn kept(&self) -> u64 {
        self.rows - self.droppable
    }
}

/// Size class of a segment: segments of one tier differ by less than a factor of eight.
fn tier(rows: u64) -> u32 {
    rows.max(1).ilog2() / 3
}

/// Runs of neighbouring segments (in row order) that are written anew as one segment each. A run of one segment is
/// one that has to shed dead rows.
///
/// So many ([`SEGMENT_FAN`]) neighbours of one tier (smaller ones between them come along) become one segment of at most
/// [`SEGMENT_ROWS`] rows; this repeats with what comes out. A segment of which more than half would not be written
/// again is rewritten. `small` (the collection is one leaf): everything becomes one segment.
pub fn merges(sizes: &[SegmentSize], small: bool, vector_bytes: u64) -> Vec<Range<usize>> {
    let kept: u64 = sizes.iter().map(SegmentSize::kept).sum();
    if small && kept.saturating_mul(vector_bytes) <= SMALL_SEGMENT_BYTES {
        let settled = sizes.is_empty() || (sizes.len() == 1 && sizes[0].droppable == 0);
        return if settled { Vec::new() } else { std::iter::once(0..sizes.len()).collect() };
    }
    // Every segment as a run of one; a run that was merged or sheds rows counts with what it keeps.
    let mut runs: Vec<(Range<usize>, u64)> =
        sizes.iter().enumerate().map(|(i, s)| (i..i + 1, if sheds(s) { s.kept() } else { s.rows })).collect();
    while let Some(found) = find_run(&runs) {
        let members = found.start..found.end;
        let range = runs[members.start].0.start..runs[members.end - 1].0.end;
        let rows = sizes[range.clone()].iter().map(SegmentSize::kept).sum();
        runs.splice(members, [(range, rows)]);
    }
    runs.into_iter().map(|(range, _)| range).filter(|r| r.len() > 1 || sheds(&sizes[r.start])).collect()
}

fn sheds(size: &SegmentSize) -> bool {
    size.droppable * 2 > size.rows
}

/// The first run, of the lowest tier, of neighbours that are to become one.
fn find_run(runs: &[(Range<usize>, u64)]) -> Option<Range<usize>> {
    let mut tiers: Vec<u32> = runs.iter().map(|(_, rows)| tier(*rows)).collect();
    tiers.sort_unstable();
    tiers.dedup();
    for t in tiers {
        let mut start = 0;
        while start < runs.len() {
            let (mut end, mut equal, mut rows) = (start, 0, 0);
            while end < runs.len() && tier(runs[end].1) <= t && rows + runs[end].1 <= SEGMENT_ROWS {
                equal += usize::from(tier(runs[end].1) == t);
                rows += runs[end].1;
                end += 1;
            }
            if equal >= SEGMENT_FAN {
                return Some(start..end);
            }
            start = if end == start { start + 1 } else { end };
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(rows: &[u64]) -> Vec<SegmentSize> {
        rows.iter().map(|&rows| SegmentSize { rows, droppable: 0 }).collect()
    }

    #[test]
    fn neighbours_of_a_tier_are_merged_and_cascade() {
        const F: usize = SEGMENT_FAN;
        assert_eq!(merges(&sizes(&[20_000; F - 1]), false, 4), vec![]);
        assert_eq!(merges(&sizes(&[2_000; F]), false, 4), vec![0..F]);
        let cascade = [[2_000 * F as u64; F - 1].as_slice(), &[2_000; F]].concat();
        assert_eq!(merges(&sizes(&cascade), false, 4), vec![0..2 * F - 1]);
        let mixed = [[1_000_000, 20_000, 20_000, 5].as_slice(), &[20_000; F - 2]].concat();
        assert_eq!(merges(&sizes(&mixed), false, 4), vec![1..F + 2]);
    }

    #[test]
    fn merged_segments_stay_below_the_limit_and_the_count_stays_small() {
        let mut held: Vec<SegmentSize> = Vec::new();
        for i in 0..2_000u64 {
            held.push(SegmentSize { rows: 5_000 + i * 37 % 30_000, droppable: 0 });
            let mut next = Vec::new();
            let mut at = 0;
            for run in merges(&held, false, 4) {
                next.extend_from_slice(&held[at..run.start]);
                next.push(SegmentSize { rows: held[run.clone()].iter().map(|s| s.rows).sum(), droppable: 0 });
                at = run.end;
            }
            next.extend_from_slice(&held[at..]);
            held = next;
            assert!(held.iter().all(|s| s.rows <= SEGMENT_ROWS));
            assert!(held.len() <= 10 * SEGMENT_FAN, "{} segments", held.len());
        }
    }

    #[test]
    fn a_segment_of_mostly_dead_rows_is_rewritten() {
        let held = [SegmentSize { rows: 100, droppable: 51 }, SegmentSize { rows: 50_000, droppable: 0 }];
        assert_eq!(merges(&held, false, 4), vec![0..1]);
    }

    #[test]
    fn a_small_collection_has_one_segment() {
        assert_eq!(merges(&sizes(&[1_000, 10]), true, 4), vec![0..2]);
        assert_eq!(merges(&sizes(&[1_000]), true, 4), vec![]);
        assert_eq!(merges(&[SegmentSize { rows: 3, droppable: 1 }], true, 4), vec![0..1]);
        assert_eq!(merges(&sizes(&[9_000, 10]), true, 65_536), vec![]);
        assert_eq!(merges(&[], true, 4), vec![]);
    }
}
