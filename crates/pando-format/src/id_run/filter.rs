//! A Bloom filter in cache lines: 12 bits a key, 6 probes, all in one 64-byte line.
//!
//! With h the id's hash: line = (h >> 32) × lines >> 32; the probes are six 9-bit pieces, highest first, of
//! (h × 0x9E3779B97F4A7C15 mod 2^64): bit `piece` of the line, least significant bit of a byte first.

use bytes::Bytes;

use crate::codec::{Bad, Codec, Reader};

const LINE: usize = 64;
const BITS_PER_KEY: usize = 12;
const PROBES: u32 = 6;

/// Says of an id hash "surely not in" or "perhaps in" (about 1% of those not in).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdFilter(Bytes);

impl IdFilter {
    /// The filter of these id hashes; independent of their order.
    pub fn new(hashes: &[u64]) -> Self {
        let lines = (hashes.len() * BITS_PER_KEY).div_ceil(8 * LINE).max(1);
        let mut bits = vec![0u8; lines * LINE];
        for &hash in hashes {
            let line = line_of(hash, lines) * LINE;
            for bit in probes(hash) {
                bits[line + bit / 8] |= 1 << (bit % 8);
            }
        }
        Self(bits.into())
    }

    /// False only if no id with this hash is in the block.
    pub fn may_contain(&self, hash: u64) -> bool {
        let line = line_of(hash, self.0.len() / LINE) * LINE;
        probes(hash).all(|bit| self.0[line + bit / 8] >> (bit % 8) & 1 == 1)
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.0.len()
    }
}

fn line_of(hash: u64, lines: usize) -> usize {
    (((hash >> 32) * lines as u64) >> 32) as usize
}

fn probes(hash: u64) -> impl Iterator<Item = usize> {
    let mixed = hash.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (0..PROBES).map(move |i| ((mixed << (9 * i)) >> 55) as usize)
}

impl Codec for IdFilter {
    const MIN: usize = 4 + LINE;
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, Bad> {
        let bits = Bytes::take(r)?;
        if bits.is_empty() || !bits.len().is_multiple_of(LINE) {
            return Err("a filter does not have whole lines");
        }
        Ok(Self(bits))
    }
}
