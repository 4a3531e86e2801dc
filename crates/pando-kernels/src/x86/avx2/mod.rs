//! AVX2 + FMA kernels. Each does the operations of its scalar twin in the same order per lane.
//!
//! The functions are safe inside the feature; the table turns them into `unsafe fn` pointers, which
//! `avx2_table` hands out only after it has found AVX2 and FMA.

mod code;
mod double;
mod float;
mod matrix;
mod nav;
mod query;
mod rotate;
mod scan;

use std::arch::x86_64::*;

pub(super) use matrix::fold_four;
pub(super) use nav::{nav_epilogue, sum4};

use crate::table::Table;

/// The AVX2 kernel table.
pub(super) const TABLE: Table = Table {
    l2: float::l2,
    dot: float::dot,
    dot_norm2: float::dot_norm2,
    l2_rows: float::l2_rows,
    dot_rows: float::dot_rows,
    dot_matrix: matrix::dot_matrix,
    l2_f64: double::l2_f64,
    dot_f64: double::dot_f64,
    dot_norm2_f64: double::dot_norm2_f64,
    flip: rotate::flip,
    fht: rotate::fht,
    kac: rotate::kac,
    bits: code::bits,
    ray: code::ray,
    ray_encode: code::ray_encode,
    nibble_dot: nav::nibble_dot,
    max_abs: query::max_abs,
    quantise: query::quantise,
    byte_sums: query::byte_sums,
    byte_tables: query::byte_tables,
    scan: scan::scan,
    estimates: scan::estimates,
    nav: nav::nav,
};

/// Register `k` of a block of 8 N values.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn load<const N: usize>(x: &[f32; N], k: usize) -> __m256 {
    let x: &[f32] = &x[k * 8..k * 8 + 8];
    // SAFETY: x has 8 values; the load is unaligned.
    unsafe { _mm256_loadu_ps(x.as_ptr()) }
}

/// Stores register `k` of a block of 8 N values.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn store<const N: usize>(x: &mut [f32; N], k: usize, v: __m256) {
    let x: &mut [f32] = &mut x[k * 8..k * 8 + 8];
    // SAFETY: x has 8 values; the store is unaligned.
    unsafe { _mm256_storeu_ps(x.as_mut_ptr(), v) }
}

/// 32 bytes.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(super) fn load_bytes(x: &[u8; 32]) -> __m256i {
    // SAFETY: x has 32 bytes; the load is unaligned.
    unsafe { _mm256_loadu_si256(x.as_ptr().cast()) }
}

/// The 8 lanes 4 + 4, 2 + 2, 1 + 1, and + 0.0: the end of every fold.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(super) fn fold8(v: __m256) -> f32 {
    let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
    let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
    let v = _mm_add_ss(v, _mm_shuffle_ps::<1>(v, v));
    _mm_cvtss_f32(v) + 0.0
}
