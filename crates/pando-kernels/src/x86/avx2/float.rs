//! f32 distances: 64 lanes in 8 registers.

use std::arch::x86_64::*;

use super::{fold8, load};

/// MASK[8 - n ..] starts with n set lanes.
static MASK: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

/// Register `k` of a tail of fewer than 64 values, zeros past its end. `8 k` is less than the length.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(super) fn load_tail(x: &[f32], k: usize) -> __m256 {
    let x = &x[k * 8..];
    let n = x.len().min(8);
    // SAFETY: 8 - n is in 0..=8, so the mask load stays inside 16 values; the masked load touches only the
    // first n values of x.
    unsafe {
        let mask = _mm256_loadu_si256(MASK.as_ptr().add(8 - n).cast());
        _mm256_maskload_ps(x.as_ptr(), mask)
    }
}

/// 64 -> 32 -> 16 -> 8 between registers, then inside the last one.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn fold(a: [__m256; 8]) -> f32 {
    let b: [__m256; 4] = [
        _mm256_add_ps(a[0], a[4]),
        _mm256_add_ps(a[1], a[5]),
        _mm256_add_ps(a[2], a[6]),
        _mm256_add_ps(a[3], a[7]),
    ];
    fold8(_mm256_add_ps(_mm256_add_ps(b[0], b[2]), _mm256_add_ps(b[1], b[3])))
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut acc = [_mm256_setzero_ps(); 8];
    let ((a, a_tail), (b, b_tail)) = (a.as_chunks::<64>(), b.as_chunks::<64>());
    for (a, b) in a.iter().zip(b) {
        for k in 0..8 {
            acc[k] = _mm256_fmadd_ps(load(a, k), load(b, k), acc[k]);
        }
    }
    for k in 0..8 {
        if k * 8 < a_tail.len() {
            acc[k] = _mm256_fmadd_ps(load_tail(a_tail, k), load_tail(b_tail, k), acc[k]);
        }
    }
    fold(acc)
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn l2(a: &[f32], b: &[f32]) -> f32 {
    let mut acc = [_mm256_setzero_ps(); 8];
    let ((a, a_tail), (b, b_tail)) = (a.as_chunks::<64>(), b.as_chunks::<64>());
    for (a, b) in a.iter().zip(b) {
        for k in 0..8 {
            let d = _mm256_sub_ps(load(a, k), load(b, k));
            acc[k] = _mm256_fmadd_ps(d, d, acc[k]);
        }
    }
    for k in 0..8 {
        if k * 8 < a_tail.len() {
            let d = _mm256_sub_ps(load_tail(a_tail, k), load_tail(b_tail, k));
            acc[k] = _mm256_fmadd_ps(d, d, acc[k]);
        }
    }
    fold(acc)
}

/// Two passes: sixteen accumulators and the operands do not fit 16 registers, and b is in L1 by then.
#[target_feature(enable = "avx2,fma")]
pub(super) fn dot_norm2(a: &[f32], b: &[f32]) -> (f32, f32) {
    (dot(a, b), dot(b, b))
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn l2_rows(q: &[f32], rows: &[f32], out: &mut [f32]) {
    for (row, o) in rows.chunks_exact(q.len()).zip(out) {
        *o = l2(q, row);
    }
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn dot_rows(q: &[f32], rows: &[f32], out: &mut [f32]) {
    for (row, o) in rows.chunks_exact(q.len()).zip(out) {
        *o = dot(q, row);
    }
}
