//! Nibble dot products by vpdpbusd: 64 dimensions a step, 32-bit sums without overflow.

use std::arch::x86_64::*;

use super::avx2;
use crate::table::NavArgs;

/// Dot products of N codes with the same weights, partial sums in 8 lanes each.
#[inline]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn dots<const N: usize>(codes: [&[[u8; 32]]; N], w: &[[i8; 64]]) -> [__m256i; N] {
    let mask = _mm512_set1_epi8(15);
    // The upper copy of the 32 bytes is shifted: its low nibbles are then dimensions 32..64.
    let shift = _mm512_inserti64x4::<1>(_mm512_setzero_si512(), _mm256_set1_epi16(4));
    let mut acc = [_mm512_setzero_si512(); N];
    for (b, w) in w.iter().enumerate() {
        // SAFETY: w has 64 bytes; the load is unaligned.
        let w = unsafe { _mm512_loadu_si512(w.as_ptr().cast()) };
        for j in 0..N {
            let v = _mm512_broadcast_i64x4(avx2::load_bytes(&codes[j][b]));
            let nibbles = _mm512_and_si512(_mm512_srlv_epi16(v, shift), mask);
            acc[j] = _mm512_dpbusd_epi32(acc[j], nibbles, w);
        }
    }
    let mut sums = [_mm256_setzero_si256(); N];
    for j in 0..N {
        sums[j] = _mm256_add_epi32(_mm512_castsi512_si256(acc[j]), _mm512_extracti64x4_epi64::<1>(acc[j]));
    }
    sums
}

#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(super) fn nibble_dot(nibbles: &[u8], w: &[i8]) -> i32 {
    let sums = dots([nibbles.as_chunks::<32>().0], w.as_chunks::<64>().0);
    let zero = _mm256_setzero_si256();
    _mm_cvtsi128_si32(avx2::sum4([sums[0], zero, zero, zero]))
}

#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(super) fn nav(a: &NavArgs<'_>, out: &mut [f32]) {
    let len = a.query.padded / 64;
    let (codes, w) = (a.codes.as_chunks::<32>().0, a.query.w.as_chunks::<64>().0);
    for (j, out) in out.chunks_mut(4).enumerate() {
        let first = j * 4;
        let sums = if out.len() == 4 {
            let c = &codes[first * len..(first + 4) * len];
            avx2::sum4(dots([&c[..len], &c[len..2 * len], &c[2 * len..3 * len], &c[3 * len..]], w))
        } else {
            let mut s = [_mm256_setzero_si256(); 4];
            for i in 0..out.len() {
                [s[i]] = dots([&codes[(first + i) * len..(first + i + 1) * len]], w);
            }
            avx2::sum4(s)
        };
        avx2::nav_epilogue(a, first, sums, out);
    }
}
