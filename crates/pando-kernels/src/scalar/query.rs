//! Quantising a query and building its look-up tables.

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

/// For each 4 values the 16 sums of (bit ? u : max - u), each at most 252: built by doubling inside an integer.
/// No byte carries into the next, as every step adds what is not negative to a part of a sum.
pub(crate) fn byte_tables(u: &[u8], max: u8, lut: &mut [u8]) {
    const ONES: u64 = 0x0101_0101_0101_0101;
    for (table, u) in lut.as_chunks_mut::<16>().0.iter_mut().zip(u.as_chunks::<4>().0) {
        let rest = u.map(|u| max - u);
        let mut x = u64::from(rest[0]) | u64::from(u[0]) << 8;
        x |= x << 16;
        x += (u64::from(rest[1]) | u64::from(u[1]) << 16) * 0x0101;
        x |= x << 32;
        x += (u64::from(rest[2]) | u64::from(u[2]) << 32) * 0x0101_0101;
        table[..8].copy_from_slice(&(x + u64::from(rest[3]) * ONES).to_le_bytes());
        table[8..].copy_from_slice(&(x + u64::from(u[3]) * ONES).to_le_bytes());
    }
}
