//! f64 sums: 16 lanes in 4 registers.

use std::arch::x86_64::*;

/// Register `k` of 16 values, widened.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn wide(x: &[f32; 16], k: usize) -> __m256d {
    let x: &[f32] = &x[k * 4..k * 4 + 4];
    // SAFETY: x has 4 values; the load is unaligned.
    _mm256_cvtps_pd(unsafe { _mm_loadu_ps(x.as_ptr()) })
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn fold(a: [__m256d; 4]) -> f64 {
    let v = _mm256_add_pd(_mm256_add_pd(a[0], a[2]), _mm256_add_pd(a[1], a[3]));
    let v = _mm_add_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd::<1>(v));
    _mm_cvtsd_f64(_mm_add_sd(v, _mm_unpackhi_pd(v, v))) + 0.0
}

/// A tail of fewer than 16 values, filled up with zeros.
#[inline]
fn filled(x: &[f32]) -> [f32; 16] {
    let mut out = [0.0; 16];
    out[..x.len()].copy_from_slice(x);
    out
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn dot_f64(a: &[f32], b: &[f32]) -> f64 {
    let mut acc = [_mm256_setzero_pd(); 4];
    let ((a, a_tail), (b, b_tail)) = (a.as_chunks::<16>(), b.as_chunks::<16>());
    for (a, b) in a.iter().zip(b) {
        add_products(&mut acc, a, b);
    }
    if !a_tail.is_empty() {
        add_products(&mut acc, &filled(a_tail), &filled(b_tail));
    }
    fold(acc)
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn add_products(acc: &mut [__m256d; 4], a: &[f32; 16], b: &[f32; 16]) {
    for k in 0..4 {
        acc[k] = _mm256_fmadd_pd(wide(a, k), wide(b, k), acc[k]);
    }
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn dot_norm2_f64(a: &[f32], b: &[f32]) -> (f64, f64) {
    let (mut dot, mut norm2) = ([_mm256_setzero_pd(); 4], [_mm256_setzero_pd(); 4]);
    let ((a, a_tail), (b, b_tail)) = (a.as_chunks::<16>(), b.as_chunks::<16>());
    for (a, b) in a.iter().zip(b) {
        add_both(&mut dot, &mut norm2, a, b);
    }
    if !a_tail.is_empty() {
        add_both(&mut dot, &mut norm2, &filled(a_tail), &filled(b_tail));
    }
    (fold(dot), fold(norm2))
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn add_both(dot: &mut [__m256d; 4], norm2: &mut [__m256d; 4], a: &[f32; 16], b: &[f32; 16]) {
    for k in 0..4 {
        let y = wide(b, k);
        dot[k] = _mm256_fmadd_pd(wide(a, k), y, dot[k]);
        norm2[k] = _mm256_fmadd_pd(y, y, norm2[k]);
    }
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn l2_f64(a: &[f32], b: &[f32]) -> f64 {
    let mut acc = [_mm256_setzero_pd(); 4];
    let ((a, a_tail), (b, b_tail)) = (a.as_chunks::<16>(), b.as_chunks::<16>());
    for (a, b) in a.iter().zip(b) {
        for k in 0..4 {
            let d = _mm256_sub_pd(wide(a, k), wide(b, k));
            acc[k] = _mm256_add_pd(acc[k], _mm256_mul_pd(d, d));
        }
    }
    if !a_tail.is_empty() {
        let (a, b) = (filled(a_tail), filled(b_tail));
        for k in 0..4 {
            let d = _mm256_sub_pd(wide(&a, k), wide(&b, k));
            acc[k] = _mm256_add_pd(acc[k], _mm256_mul_pd(d, d));
        }
    }
    fold(acc)
}
