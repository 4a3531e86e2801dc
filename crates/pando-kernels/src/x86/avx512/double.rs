//! f64 sums: 16 lanes in 2 registers.

use std::arch::x86_64::*;

/// The 16 lanes of a sum.
type Lanes = [__m512d; 2];

/// Register `k` of 16 values, widened.
#[inline]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn wide(x: &[f32; 16], k: usize) -> __m512d {
    let x: &[f32] = &x[k * 8..k * 8 + 8];
    // SAFETY: x has 8 values; the load is unaligned.
    _mm512_cvtps_pd(unsafe { _mm256_loadu_ps(x.as_ptr()) })
}

/// A tail of fewer than 16 values, filled up with zeros.
#[inline]
fn filled(x: &[f32]) -> [f32; 16] {
    let mut out = [0.0; 16];
    out[..x.len()].copy_from_slice(x);
    out
}

/// 16 -> 8 between the registers, 4, 2, 1 inside.
#[inline]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn fold(a: Lanes) -> f64 {
    let v = _mm512_add_pd(a[0], a[1]);
    let v = _mm256_add_pd(_mm512_castpd512_pd256(v), _mm512_extractf64x4_pd::<1>(v));
    let v = _mm_add_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd::<1>(v));
    _mm_cvtsd_f64(_mm_add_sd(v, _mm_unpackhi_pd(v, v))) + 0.0
}

#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(super) fn dot_f64(a: &[f32], b: &[f32]) -> f64 {
    let mut acc = [_mm512_setzero_pd(); 2];
    let ((whole_a, a), (whole_b, b)) = (a.as_chunks::<16>(), b.as_chunks::<16>());
    for (a, b) in whole_a.iter().zip(whole_b) {
        add_products(&mut acc, a, b);
    }
    if !a.is_empty() {
        add_products(&mut acc, &filled(a), &filled(b));
    }
    fold(acc)
}

#[inline]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn add_products(acc: &mut Lanes, a: &[f32; 16], b: &[f32; 16]) {
    for k in 0..2 {
        acc[k] = _mm512_fmadd_pd(wide(a, k), wide(b, k), acc[k]);
    }
}

#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(super) fn dot_norm2_f64(a: &[f32], b: &[f32]) -> (f64, f64) {
    let (mut dot, mut norm2) = ([_mm512_setzero_pd(); 2], [_mm512_setzero_pd(); 2]);
    let ((whole_a, a), (whole_b, b)) = (a.as_chunks::<16>(), b.as_chunks::<16>());
    for (a, b) in whole_a.iter().zip(whole_b) {
        add_both(&mut dot, &mut norm2, a, b);
    }
    if !a.is_empty() {
        add_both(&mut dot, &mut norm2, &filled(a), &filled(b));
    }
    (fold(dot), fold(norm2))
}

#[inline]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn add_both(dot: &mut Lanes, norm2: &mut Lanes, a: &[f32; 16], b: &[f32; 16]) {
    for k in 0..2 {
        let y = wide(b, k);
        dot[k] = _mm512_fmadd_pd(wide(a, k), y, dot[k]);
        norm2[k] = _mm512_fmadd_pd(y, y, norm2[k]);
    }
}

#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(super) fn l2_f64(a: &[f32], b: &[f32]) -> f64 {
    let mut acc = [_mm512_setzero_pd(); 2];
    let ((whole_a, a), (whole_b, b)) = (a.as_chunks::<16>(), b.as_chunks::<16>());
    for (a, b) in whole_a.iter().zip(whole_b) {
        add_squares(&mut acc, a, b);
    }
    if !a.is_empty() {
        add_squares(&mut acc, &filled(a), &filled(b));
    }
    fold(acc)
}

#[inline]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn add_squares(acc: &mut Lanes, a: &[f32; 16], b: &[f32; 16]) {
    for k in 0..2 {
        let d = _mm512_sub_pd(wide(a, k), wide(b, k));
        acc[k] = _mm512_add_pd(acc[k], _mm512_mul_pd(d, d));
    }
}
