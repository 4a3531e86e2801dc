//! Quantising a query and building its look-up tables.

use crate::table::ByteSums;

/// Adding this to an f32 of at most 2^22 in size rounds it to an integer, ties to even, in the low bits.
pub(crate) const ROUND: f32 = 12_582_912.0;

/// Largest absolute value.
pub(crate) fn max_abs(x: &[f32]) -> f32 {
    let mut m = [0.0f32; 16];
    for x in x.chunks_exact(16) {
        for (m, v) in m.iter_mut().zip(x) {
            let v = v.abs();
            *m = if v > *m { v } else { *m };
        }
    }
    m.into_iter().fold(0.0, f32::max)
}

/// `x * scale + offset`, at least `low` and at most `high`, rounded to an integer: its low byte.
pub(crate) fn quantise(x: &[f32], [scale, offset, low, high]: [f32; 4], out: &mut [u8]) {
    for (o, v) in out.iter_mut().zip(x) {
        let x = v * scale + offset;
        let x = if x > low { x } else { low };
        let x = if x < high { x } else { high };
        *o = (x + ROUND).to_bits() as u8;
    }
}

/// See [`ByteSums`].
pub(crate) fn byte_sums(u: &[u8], max: u8) -> ByteSums {
    let mut sums = ByteSums { sum: 0, least: 0, widest: 0 };
    for column in u.chunks_exact(8) {
        let mut wide = 0;
        for u in column {
            sums.sum += u32::from(*u);
            sums.least += u32::from(*u.min(&(max - u)));
            wide += u32::from(u.abs_diff(max - u));
        }
        sums.widest = sums.widest.max(wide);
    }
    sums
}

/// For each 4 values the 16 sums of (bit ? u : max - u) less the smallest of them: (bit ? max(0, 2u - max) :
/// max(0, max - 2u)). Built by doubling inside an integer: no byte carries into the next, as every step adds what
/// is not negative to a part of a sum of at most 252.
pub(crate) fn byte_tables(u: &[u8], max: u8, lut: &mut [u8]) {
    const ONES: u64 = 0x0101_0101_0101_0101;
    for (table, u) in lut.as_chunks_mut::<16>().0.iter_mut().zip(u.as_chunks::<4>().0) {
        let set = u.map(|u| u64::from(u.saturating_sub(max - u)));
        let clear = u.map(|u| u64::from((max - u).saturating_sub(u)));
        let mut x = clear[0] | set[0] << 8;
        x |= x << 16;
        x += (clear[1] | set[1] << 16) * 0x0101;
        x |= x << 32;
        x += (clear[2] | set[2] << 32) * 0x0101_0101;
        table[..8].copy_from_slice(&(x + clear[3] * ONES).to_le_bytes());
        table[8..].copy_from_slice(&(x + set[3] * ONES).to_le_bytes());
    }
}
