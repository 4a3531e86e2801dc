//! AVX-512 kernels (F, BW, VL, DQ, VNNI). What is hot in a query and in a build has its own code here; rotation
//! and encoding are those of AVX2, which every such CPU has.

mod double;
mod float;
mod matrix;
mod nav;
mod scan;

use std::arch::x86_64::*;

use super::avx2;
use crate::table::Table;

/// The AVX-512 kernel table.
pub(super) static TABLE: Table = Table {
    l2: float::l2,
    dot: float::dot,
    dot_norm2: float::dot_norm2,
    l2_rows: float::l2_rows,
    dot_rows: float::dot_rows,
    dot_matrix: matrix::dot_matrix,
    l2_f64: double::l2_f64,
    dot_f64: double::dot_f64,
    dot_norm2_f64: double::dot_norm2_f64,
    nibble_dot: nav::nibble_dot,
    scan: scan::scan,
    estimates: scan::estimates,
    nav: nav::nav,
    ..avx2::TABLE
};

/// Register `k` of a block of 16 N values.
#[inline]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load<const N: usize>(x: &[f32; N], k: usize) -> __m512 {
    let x: &[f32] = &x[k * 16..k * 16 + 16];
    // SAFETY: x has 16 values; the load is unaligned.
    unsafe { _mm512_loadu_ps(x.as_ptr()) }
}

/// Register `k` of a tail of fewer than 64 values, zeros past its end.
#[inline]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_tail(x: &[f32], k: usize) -> __m512 {
    let x = &x[x.len().min(k * 16)..];
    let mask = ((1u32 << x.len().min(16)) - 1) as __mmask16;
    // SAFETY: the mask covers at most x.len() values; lanes outside are not read.
    unsafe { _mm512_maskz_loadu_ps(mask, x.as_ptr()) }
}

/// 64 bytes.
#[inline]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_bytes(x: &[u8; 64]) -> __m512i {
    // SAFETY: x has 64 bytes; the load is unaligned.
    unsafe { _mm512_loadu_si512(x.as_ptr().cast()) }
}

/// Lanes 16 -> 8.
#[inline]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn fold16(v: __m512) -> __m256 {
    _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v))
}
