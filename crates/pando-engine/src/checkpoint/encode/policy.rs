//! When a group's blocks are written anew, and which of its deltas a new one takes in: a pure function of row counts.

use super::super::constants::{DELTA_MERGE_PERCENT, DELTA_PERCENT, SUPERSEDED_PERCENT};

/// Rows in a group's blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Rows in each block, superseded ones included: the base, then up to two deltas. Empty for a new group.
    pub blocks: Vec<u64>,
    /// Of these, rows that will no longer count.
    pub superseded: u64,
    /// Rows to be written: added, re-encoded, or brought from other groups.
    pub new: u64,
}

/// What to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// A new base with everything.
    Base,
    /// The first `keep` blocks stay; what counts of the others goes into a new delta with the new rows.
    Delta {
        /// At least 1, at most 2.
        keep: usize,
    },
    /// Nothing to write: the blocks stay.
    Keep,
}

/// Decides the layout.
pub fn layout(shape: &Shape) -> Layout {
    let Some((&base, deltas)) = shape.blocks.split_first() else { return Layout::Base };
    let in_deltas: u64 = deltas.iter().sum();
    let over = |rows: u64, percent: u64| rows.saturating_mul(100) > base.saturating_mul(percent);
    if over(shape.superseded, SUPERSEDED_PERCENT) || over(in_deltas + shape.new, DELTA_PERCENT) {
        return Layout::Base;
    }
    if shape.new == 0 {
        return Layout::Keep;
    }
    // Two deltas of falling size: the newer takes the new rows in until it is as large as a half of the older.
    let keep = match *deltas {
        [older, ..] => {
            let newer = deltas.get(1).copied().unwrap_or(0) + shape.new;
            if newer.saturating_mul(100) > older.saturating_mul(DELTA_MERGE_PERCENT) { 1 } else { 2 }
        }
        [] => 1,
    };
    Layout::Delta { keep }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(blocks: &[u64], superseded: u64, new: u64) -> Shape {
        Shape { blocks: blocks.to_vec(), superseded, new }
    }

    #[test]
    fn bases_are_written_for_new_groups_and_full_deltas() {
        assert_eq!(layout(&shape(&[], 0, 10)), Layout::Base);
        assert_eq!(layout(&shape(&[1000, 500], 0, 101)), Layout::Base);
        assert_eq!(layout(&shape(&[1000], 601, 0)), Layout::Base);
        assert_eq!(layout(&shape(&[0], 0, 1)), Layout::Base);
    }

    #[test]
    fn deltas_are_merged_when_the_newer_grows() {
        assert_eq!(layout(&shape(&[1000], 0, 10)), Layout::Delta { keep: 1 });
        assert_eq!(layout(&shape(&[1000, 10], 0, 10)), Layout::Delta { keep: 1 });
        assert_eq!(layout(&shape(&[1000, 20], 0, 10)), Layout::Delta { keep: 2 });
        assert_eq!(layout(&shape(&[1000, 40, 10], 0, 10)), Layout::Delta { keep: 2 });
        assert_eq!(layout(&shape(&[1000, 40, 20], 0, 10)), Layout::Delta { keep: 1 });
        assert_eq!(layout(&shape(&[1000, 40, 20], 0, 0)), Layout::Keep);
    }

    #[test]
    fn steady_growth_by_a_hundredth_writes_a_few_hundredths() {
        let (mut blocks, mut written) = (vec![10_000u64], 0);
        for _ in 0..25 {
            match layout(&shape(&blocks, 0, 100)) {
                Layout::Base => {
                    blocks = vec![blocks.iter().sum::<u64>() + 100];
                    written += blocks[0];
                }
                Layout::Delta { keep } => {
                    let taken: u64 = blocks.drain(keep..).sum();
                    blocks.push(taken + 100);
                    written += taken + 100;
                }
                Layout::Keep => {}
            }
            assert!(blocks.len() <= 3);
        }
        assert!(written < 25 * 500, "{written} rows in 25 checkpoints");
    }
}
