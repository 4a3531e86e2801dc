//! Nibble dot products: u4 x i8 pairs into 16 bits, 32 bits before they overflow.

use std::arch::x86_64::*;

use super::load_bytes;
use crate::table::NavArgs;

/// Blocks of 64 dimensions between spills to 32 bits: two pair sums of at most 2 * 15 * 128 each a block.
const SPILL: usize = 4;

/// Adds the pair products of one 64-dimension block.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn block(acc: __m256i, bytes: &[u8; 32], w: (__m256i, __m256i)) -> __m256i {
    let (v, mask) = (load_bytes(bytes), _mm256_set1_epi8(15));
    let low = _mm256_and_si256(v, mask);
    let high = _mm256_and_si256(_mm256_srli_epi16::<4>(v), mask);
    let pairs = _mm256_add_epi16(_mm256_maddubs_epi16(low, w.0), _mm256_maddubs_epi16(high, w.1));
    _mm256_add_epi16(acc, pairs)
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn weights(w: &[i8; 64]) -> (__m256i, __m256i) {
    // SAFETY: w has 64 bytes, two unaligned loads of 32.
    unsafe { (_mm256_loadu_si256(w.as_ptr().cast()), _mm256_loadu_si256(w.as_ptr().add(32).cast())) }
}

/// Dot products of N codes with the same weights, 32-bit partial sums in 8 lanes each.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn dots<const N: usize>(codes: [&[[u8; 32]]; N], w: &[[i8; 64]]) -> [__m256i; N] {
    let ones = _mm256_set1_epi16(1);
    let mut sums = [_mm256_setzero_si256(); N];
    let mut start = 0;
    while start < w.len() {
        let end = (start + SPILL).min(w.len());
        let mut acc = [_mm256_setzero_si256(); N];
        for b in start..end {
            let w = weights(&w[b]);
            for j in 0..N {
                acc[j] = block(acc[j], &codes[j][b], w);
            }
        }
        for j in 0..N {
            sums[j] = _mm256_add_epi32(sums[j], _mm256_madd_epi16(acc[j], ones));
        }
        start = end;
    }
    sums
}

/// Horizontal sums of four registers.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(in crate::x86) fn sum4(s: [__m256i; 4]) -> __m128i {
    let s = _mm256_hadd_epi32(_mm256_hadd_epi32(s[0], s[1]), _mm256_hadd_epi32(s[2], s[3]));
    _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256::<1>(s))
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn nibble_dot(nibbles: &[u8], w: &[i8]) -> i32 {
    let sums = dots([nibbles.as_chunks::<32>().0], w.as_chunks::<64>().0);
    let zero = _mm256_setzero_si256();
    _mm_cvtsi128_si32(sum4([sums[0], zero, zero, zero]))
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn nav(a: &NavArgs<'_>, out: &mut [f32]) {
    let len = a.query.padded / 64;
    let (codes, w) = (a.codes.as_chunks::<32>().0, a.query.w.as_chunks::<64>().0);
    for (j, out) in out.chunks_mut(4).enumerate() {
        let first = j * 4;
        let sums = if out.len() == 4 {
            let c = &codes[first * len..(first + 4) * len];
            sum4(dots([&c[..len], &c[len..2 * len], &c[2 * len..3 * len], &c[3 * len..]], w))
        } else {
            let mut s = [_mm256_setzero_si256(); 4];
            for i in 0..out.len() {
                [s[i]] = dots([&codes[(first + i) * len..(first + i + 1) * len]], w);
            }
            sum4(s)
        };
        nav_epilogue(a, first, sums, out);
    }
}

/// Scores of up to four codes from their sums.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(in crate::x86) fn nav_epilogue(a: &NavArgs<'_>, first: usize, sums: __m128i, out: &mut [f32]) {
    let t = _mm_sub_epi32(_mm_add_epi32(sums, sums), _mm_set1_epi32(15 * a.query.w_sum));
    let value = _mm_mul_ps(_mm_cvtepi32_ps(t), _mm_set1_ps(a.query.half_step));
    let (w, add) = (&a.w[first..], &a.add[first..]);
    if let (Some(w), Some(add), [_, _, _, _]) = (w.first_chunk::<4>(), add.first_chunk::<4>(), &*out) {
        // SAFETY: w, add and out have 4 values each.
        unsafe {
            let score = _mm_fmadd_ps(_mm_loadu_ps(w.as_ptr()), value, _mm_loadu_ps(add.as_ptr()));
            _mm_storeu_ps(out.as_mut_ptr(), score);
        }
    } else {
        let mut values = [0.0f32; 4];
        // SAFETY: values has 4 values.
        unsafe { _mm_storeu_ps(values.as_mut_ptr(), value) }
        for (i, o) in out.iter_mut().enumerate() {
            *o = w[i].mul_add(values[i], add[i]);
        }
    }
}
