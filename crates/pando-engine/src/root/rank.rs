//! Positions of row numbers in a segment that has holes: a bitmap of the rows present with counts, so that a lookup is
//! two reads and a popcount.

use pando_format::SegmentSide;

/// Words of 64 rows between two counts.
const STRIDE: usize = 8;

/// Where rows are in a segment.
#[derive(Debug)]
pub struct RowRank {
    first: u64,
    last: u64,
    /// Bit i is set when row `first + i` is present; empty when none is missing.
    words: Vec<u64>,
    /// Rows present before each stride.
    counts: Vec<u32>,
}

impl RowRank {
    /// The rows of a segment.
    pub fn new(side: &SegmentSide) -> Self {
        let (first, last) = (side.first_row, side.last_row);
        let mut rank = Self { first, last, words: Vec::new(), counts: Vec::new() };
        if !side.holes.is_empty() {
            rank.fill(side.holes.iter());
        }
        rank
    }

    fn fill(&mut self, holes: impl Iterator<Item = u64>) {
        let span = (self.last - self.first + 1) as usize;
        self.words = vec![u64::MAX; span.div_ceil(64)];
        // Bits past the last row count as missing.
        for at in holes.map(|hole| (hole - self.first) as usize).chain(span..span.next_multiple_of(64)) {
            self.words[at / 64] &= !(1 << (at % 64));
        }
        let mut count = 0;
        for stride in self.words.chunks(STRIDE) {
            self.counts.push(count);
            count += stride.iter().map(|word| word.count_ones()).sum::<u32>();
        }
    }

    /// Position of a row from 0, if it is in the segment.
    #[inline]
    pub fn position(&self, row: u64) -> Option<u64> {
        if row < self.first || row > self.last {
            return None;
        }
        let at = (row - self.first) as usize;
        if self.words.is_empty() {
            return Some(at as u64);
        }
        let (word, bit) = (at / 64, at % 64);
        if self.words[word] >> bit & 1 == 0 {
            return None;
        }
        let stride = word / STRIDE;
        let whole: u32 = self.words[stride * STRIDE..word].iter().map(|w| w.count_ones()).sum();
        let below = (self.words[word] & ((1u64 << bit) - 1)).count_ones();
        Some(u64::from(self.counts[stride] + whole + below))
    }

    /// Row numbers at these positions.
    pub fn rows(&self, positions: std::ops::Range<u64>) -> Vec<u64> {
        if self.words.is_empty() {
            return (self.first + positions.start..self.first + positions.end).collect();
        }
        let mut out = Vec::with_capacity((positions.end - positions.start) as usize);
        let stride = self.counts.partition_point(|count| u64::from(*count) <= positions.start) - 1;
        let mut skip = positions.start - u64::from(self.counts[stride]);
        for (at, word) in self.words.iter().enumerate().skip(stride * STRIDE) {
            let mut word = *word;
            while word != 0 {
                let row = self.first + (at * 64) as u64 + u64::from(word.trailing_zeros());
                word &= word - 1;
                if skip > 0 {
                    skip -= 1;
                    continue;
                }
                if out.len() as u64 == positions.end - positions.start {
                    return out;
                }
                out.push(row);
            }
        }
        out
    }

    /// The last row.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.words.len() * 8 + self.counts.len() * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(first: u64, last: u64, missing: &[u64]) -> RowRank {
        let mut rank = RowRank { first, last, words: Vec::new(), counts: Vec::new() };
        if !missing.is_empty() {
            rank.fill(missing.iter().copied());
        }
        rank
    }

    #[test]
    fn positions_and_rows_are_inverse() {
        let missing: Vec<u64> =
            (1001..9999).filter(|row| row % 3 == 0 || (4000..5000).contains(row)).collect();
        let present: Vec<u64> = (1000..=10_000).filter(|row| !missing.contains(row)).collect();
        let rank = rank(1000, 10_000, &missing);
        for (position, row) in present.iter().enumerate() {
            assert_eq!(rank.position(*row), Some(position as u64));
        }
        assert!(missing.iter().all(|row| rank.position(*row).is_none()));
        assert_eq!((rank.position(999), rank.position(10_001)), (None, None));
        let n = present.len() as u64;
        for (start, end) in [(0, n), (0, 0), (1, 2), (700, 1900), (n - 1, n)] {
            assert_eq!(rank.rows(start..end), present[start as usize..end as usize]);
        }
    }

    #[test]
    fn without_holes_it_is_arithmetic() {
        let rank = rank(5, 8, &[]);
        assert_eq!((rank.position(5), rank.position(8), rank.position(9)), (Some(0), Some(3), None));
        assert_eq!((rank.rows(1..3), rank.memory()), (vec![6, 7], 0));
    }
}
