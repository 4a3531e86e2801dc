//! f32 distances: 64 lanes in 4 registers.

use std::arch::x86_64::*;

use super::{avx2, fold16, load, load_tail};

/// 64 -> 32 -> 16 between registers, 8, then as AVX2.
#[inline]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn fold(a: [__m512; 4]) -> f32 {
    avx2::fold8(fold16(_mm512_add_ps(_mm512_add_ps(a[0], a[2]), _mm512_add_ps(a[1], a[3]))))
}

#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut acc = [_mm512_setzero_ps(); 4];
    let ((a, a_tail), (b, b_tail)) = (a.as_chunks::<64>(), b.as_chunks::<64>());
    for (a, b) in a.iter().zip(b) {
        for k in 0..4 {
            acc[k] = _mm512_fmadd_ps(load(a, k), load(b, k), acc[k]);
        }
    }
    if !a_tail.is_empty() {
        for k in 0..4 {
            acc[k] = _mm512_fmadd_ps(load_tail(a_tail, k), load_tail(b_tail, k), acc[k]);
        }
    }
    fold(acc)
}

#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(super) fn l2(a: &[f32], b: &[f32]) -> f32 {
    let mut acc = [_mm512_setzero_ps(); 4];
    let ((a, a_tail), (b, b_tail)) = (a.as_chunks::<64>(), b.as_chunks::<64>());
    for (a, b) in a.iter().zip(b) {
        for k in 0..4 {
            let d = _mm512_sub_ps(load(a, k), load(b, k));
            acc[k] = _mm512_fmadd_ps(d, d, acc[k]);
        }
    }
    if !a_tail.is_empty() {
        for k in 0..4 {
            let d = _mm512_sub_ps(load_tail(a_tail, k), load_tail(b_tail, k));
            acc[k] = _mm512_fmadd_ps(d, d, acc[k]);
        }
    }
    fold(acc)
}

#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(super) fn dot_norm2(a: &[f32], b: &[f32]) -> (f32, f32) {
    let (mut dot, mut norm2) = ([_mm512_setzero_ps(); 4], [_mm512_setzero_ps(); 4]);
    let ((a, a_tail), (b, b_tail)) = (a.as_chunks::<64>(), b.as_chunks::<64>());
    for (a, b) in a.iter().zip(b) {
        for k in 0..4 {
            let y = load(b, k);
            dot[k] = _mm512_fmadd_ps(load(a, k), y, dot[k]);
            norm2[k] = _mm512_fmadd_ps(y, y, norm2[k]);
        }
    }
    if !a_tail.is_empty() {
        for k in 0..4 {
            let y = load_tail(b_tail, k);
            dot[k] = _mm512_fmadd_ps(load_tail(a_tail, k), y, dot[k]);
            norm2[k] = _mm512_fmadd_ps(y, y, norm2[k]);
        }
    }
    (fold(dot), fold(norm2))
}

#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(super) fn l2_rows(q: &[f32], rows: &[f32], out: &mut [f32]) {
    for (row, o) in rows.chunks_exact(q.len()).zip(out) {
        *o = l2(q, row);
    }
}

#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(super) fn dot_rows(q: &[f32], rows: &[f32], out: &mut [f32]) {
    for (row, o) in rows.chunks_exact(q.len()).zip(out) {
        *o = dot(q, row);
    }
}
