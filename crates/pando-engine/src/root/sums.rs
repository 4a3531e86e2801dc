//! Checksums of small parts of stored bytes, noted in memory when the whole was verified, so that later reads of parts can be
//! checked (law 2) without reading the whole again. They are CRC32C; the format on storage knows nothing of them.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Sums of the parts of a block, all known: [`BlockSums::PART`] bytes each, the last part is shorter.
#[derive(Debug)]
pub struct BlockSums {
    sums: Box<[u32]>,
    len: u64,
}

impl BlockSums {
    /// Bytes of a part: codes of a few rows. The sums take 1/128 of the block.
    pub const PART: u64 = 512;

    /// Of a block that was verified.
    pub fn of(block: &[u8]) -> Self {
        let sums = block.chunks(Self::PART as usize).map(crc32c::crc32c).collect();
        Self { sums, len: block.len() as u64 }
    }

    /// Bytes of memory for a block of `len` bytes.
    pub fn memory_for(len: u64) -> u64 {
        len.div_ceil(Self::PART) * 4
    }

    /// The whole parts that a range lies in.
    pub fn cover(&self, range: &Range<u64>) -> Range<u64> {
        let end = range.end.next_multiple_of(Self::PART).min(self.len);
        (range.start / Self::PART * Self::PART).min(end)..end
    }

    /// Whether these bytes, which begin at a part of the block and are whole parts, are the verified ones.
    pub fn check(&self, start: u64, bytes: &[u8]) -> bool {
        let first = (start / Self::PART) as usize;
        let Some(sums) = self.sums.get(first..) else { return false };
        let parts = bytes.chunks(Self::PART as usize);
        parts.len() <= sums.len() && parts.zip(sums).all(|(part, sum)| crc32c::crc32c(part) == *sum)
    }
}

/// Sums of the parts of a segment, noted as its pages are read. Parts do not cross pages.
#[derive(Debug)]
pub struct SegmentSums {
    /// 0: not known. (A part whose sum is 0 stays unknown, which costs a read of its page.)
    sums: Box<[AtomicU32]>,
    len: u64,
}

impl SegmentSums {
    /// Bytes of a part. The sums take 1/512 of the segment.
    pub const PART: u64 = 2048;

    /// Of a segment of `len` bytes; none is known.
    pub fn new(len: u64) -> Self {
        let sums = (0..len.div_ceil(Self::PART)).map(|_| AtomicU32::new(0)).collect();
        Self { sums, len }
    }

    /// Bytes of memory for a segment of `len` bytes.
    pub fn memory_for(len: u64) -> u64 {
        len.div_ceil(Self::PART) * 4
    }

    /// The whole parts that a range lies in, if the sums of all of them are known.
    pub fn cover(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let parts = range.start / Self::PART..range.end.div_ceil(Self::PART);
        let sums = self.sums.get(parts.start as usize..parts.end as usize)?;
        let known = sums.iter().all(|sum| sum.load(Relaxed) != 0);
        known.then(|| parts.start * Self::PART..(parts.end * Self::PART).min(self.len))
    }

    /// Whether these bytes, which begin at a part and are whole parts of known sums, are the verified ones.
    pub fn check(&self, start: u64, bytes: &[u8]) -> bool {
        self.parts(start, bytes).all(|(sum, part)| crc32c::crc32c(part) == sum.load(Relaxed))
    }

    /// Notes the sums of verified bytes that begin at a part and are whole parts.
    pub fn note(&self, start: u64, bytes: &[u8]) {
        for (sum, part) in self.parts(start, bytes) {
            // Whoever writes it writes the same.
            if sum.load(Relaxed) == 0 {
                sum.store(crc32c::crc32c(part), Relaxed);
            }
        }
    }

    fn parts<'a>(&'a self, start: u64, bytes: &'a [u8]) -> impl Iterator<Item = (&'a AtomicU32, &'a [u8])> {
        let first = (start / Self::PART) as usize;
        self.sums[first..].iter().zip(bytes.chunks(Self::PART as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_block_are_checked() {
        let block: Vec<u8> = (0..5000u32).map(|i| (i * 7 % 251) as u8).collect();
        let sums = BlockSums::of(&block);
        for (range, want) in
            [(0..1, 0..512), (511..513, 0..1024), (4999..5000, 4608..5000), (0..5000, 0..5000)]
        {
            let cover = sums.cover(&range);
            assert_eq!(cover, want);
            let mut part = block[cover.start as usize..cover.end as usize].to_vec();
            assert!(sums.check(cover.start, &part));
            let at = (range.start - cover.start) as usize;
            part[at] ^= 1;
            assert!(!sums.check(cover.start, &part));
        }
        // As a map of another block might ask.
        assert!(!sums.check(6144, &block[..10]) && !sums.check(4608, &block[..1000]));
    }

    #[test]
    fn parts_of_a_segment_are_known_once_they_were_noted() {
        let bytes: Vec<u8> = (0..40_000u32).map(|i| (i * 11 % 253) as u8).collect();
        let sums = SegmentSums::new(40_000);
        assert_eq!(sums.cover(&(17_000..17_010)), None);
        sums.note(16_384, &bytes[16_384..32_768]);
        sums.note(32_768, &bytes[32_768..]);
        assert_eq!(sums.cover(&(17_000..18_500)), Some(16_384..20_480));
        assert_eq!(sums.cover(&(39_900..40_000)), Some(38_912..40_000));
        assert_eq!(sums.cover(&(16_000..18_500)), None);
        assert!(sums.check(16_384, &bytes[16_384..20_480]) && sums.check(38_912, &bytes[38_912..]));
        assert!(!sums.check(16_384, &bytes[16_385..20_481]));
    }
}
