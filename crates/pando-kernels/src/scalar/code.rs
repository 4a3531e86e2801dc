//! Encoding and the nibble dot product.

use crate::table::{BitSums, RaySums};

/// Virtual lanes of the sums made while encoding; three sums of 32 lanes fit the registers of AVX2.
pub(crate) const CODE_LANES: usize = 32;

/// Folds the lanes 32 -> 16 -> ... -> 1.
fn fold(acc: &mut [f32; CODE_LANES]) -> f32 {
    let mut width = CODE_LANES / 2;
    while width > 0 {
        for l in 0..width {
            acc[l] += acc[l + width];
        }
        width /= 2;
    }
    acc[0] + 0.0
}

/// Sign bits of `r` (1 = sign bit clear, LSB first) and the three sums of a 1-bit code, in 32 lanes each.
pub(crate) fn bits(r: &[f32], c: &[f32], code: &mut [u8]) -> BitSums {
    let mut norm2 = [0.0f32; CODE_LANES];
    let mut abs = [0.0f32; CODE_LANES];
    let mut signed_c = [0.0f32; CODE_LANES];
    for (block, (r, c)) in r.chunks_exact(CODE_LANES).zip(c.chunks_exact(CODE_LANES)).enumerate() {
        let mut word = 0u32;
        for l in 0..CODE_LANES {
            let sign = r[l].to_bits() & 0x8000_0000;
            word |= u32::from(sign == 0) << l;
            norm2[l] = r[l].mul_add(r[l], norm2[l]);
            abs[l] += r[l].abs();
            signed_c[l] += f32::from_bits(c[l].to_bits() ^ sign);
        }
        code[block * 4..block * 4 + 4].copy_from_slice(&word.to_le_bytes());
    }
    BitSums { norm2: fold(&mut norm2), abs: fold(&mut abs), signed_c: fold(&mut signed_c) }
}

/// Magnitude level of a coordinate: floor(t |x|), at most `top`.
#[inline]
fn level(x: f32, t: f32, top: f32) -> f32 {
    let y = t * x.abs();
    // Truncation is the floor here: y is not negative.
    (if y < top { y } else { top }) as i32 as f32
}

/// For odd levels o = 2 floor(t |x|) + 1: sum of |x| o and sum of o^2 (an exact integer).
pub(crate) fn ray(x: &[f32], t: f32, top: f32) -> RaySums {
    let mut num = [0.0f32; CODE_LANES];
    let mut den = 0.0f32;
    for x in x.chunks_exact(CODE_LANES) {
        for l in 0..CODE_LANES {
            let o = level(x[l], t, top) * 2.0 + 1.0;
            num[l] = x[l].abs().mul_add(o, num[l]);
            den += o * o;
        }
    }
    RaySums { num: fold(&mut num), den, signed_c: 0.0 }
}

/// As [`ray`], and writes the nibbles `(m | bias) ^ (15 if negative)` and sums sign * o * c.
pub(crate) fn ray_encode(x: &[f32], c: &[f32], t: f32, top: f32, bias: u8, nibbles: &mut [u8]) -> RaySums {
    let mut num = [0.0f32; CODE_LANES];
    let mut signed_c = [0.0f32; CODE_LANES];
    let mut den = 0.0f32;
    for (half, (x, c)) in x.chunks_exact(CODE_LANES).zip(c.chunks_exact(CODE_LANES)).enumerate() {
        // 64 dimensions fill 32 bytes: low nibbles are dimensions 0..32, high nibbles 32..64.
        let bytes = &mut nibbles[half / 2 * 32..half / 2 * 32 + 32];
        for l in 0..CODE_LANES {
            let m = level(x[l], t, top);
            let o = m * 2.0 + 1.0;
            num[l] = x[l].abs().mul_add(o, num[l]);
            den += o * o;
            let sign = x[l].to_bits() & 0x8000_0000;
            signed_c[l] = f32::from_bits(o.to_bits() ^ sign).mul_add(c[l], signed_c[l]);
            let nibble = (m as u8 | bias) ^ if sign == 0 { 0 } else { 15 };
            bytes[l] = if half % 2 == 0 { nibble } else { bytes[l] | nibble << 4 };
        }
    }
    RaySums { num: fold(&mut num), den, signed_c: fold(&mut signed_c) }
}

/// Sum of nibble * w over all dimensions.
pub(crate) fn nibble_dot(nibbles: &[u8], w: &[i8]) -> i32 {
    let mut sum = 0i32;
    for (bytes, w) in nibbles.chunks_exact(32).zip(w.chunks_exact(64)) {
        for l in 0..32 {
            sum += i32::from(bytes[l] & 15) * i32::from(w[l]);
            sum += i32::from(bytes[l] >> 4) * i32::from(w[l + 32]);
        }
    }
    sum
}
