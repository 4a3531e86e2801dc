//! Scan of packed 1-bit codes by table look-ups (pshufb), 32 rows at a time, and its f32 epilogue.

use std::arch::x86_64::*;

use super::load_bytes;
use crate::packed::BLOCK_ROWS;
use crate::query::{ScanQuery, Survivor};
use crate::table::EstimateArgs;

/// Byte columns between spills to 32 bits: 2 look-ups of at most 255 each a column, 128 * 510 < 2^16.
const SPILL: usize = 128;

/// Table sums of one block: rows 0..8, 8..16, 16..24, 24..32 as 32-bit lanes.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn table_sums(lut: &[[u8; 32]], block: &[[u8; 32]]) -> [__m256i; 4] {
    let mask = _mm256_set1_epi8(15);
    let mut sums = [_mm256_setzero_si256(); 4];
    for (lut, block) in lut.chunks(SPILL).zip(block.chunks(SPILL)) {
        // 16-bit lanes over bytes: `all` gathers even byte + 256 * odd byte modulo 2^16, `odd` the odd bytes.
        let (mut all, mut odd) = (_mm256_setzero_si256(), _mm256_setzero_si256());
        for (lut, column) in lut.iter().zip(block) {
            let tables = load_bytes(lut);
            let low_table = _mm256_permute2x128_si256::<0x00>(tables, tables);
            let high_table = _mm256_permute2x128_si256::<0x11>(tables, tables);
            let v = load_bytes(column);
            let a = _mm256_shuffle_epi8(low_table, _mm256_and_si256(v, mask));
            let b = _mm256_shuffle_epi8(high_table, _mm256_and_si256(_mm256_srli_epi16::<4>(v), mask));
            all = _mm256_add_epi16(all, _mm256_add_epi16(a, b));
            odd =
                _mm256_add_epi16(odd, _mm256_add_epi16(_mm256_srli_epi16::<8>(a), _mm256_srli_epi16::<8>(b)));
        }
        let even = _mm256_sub_epi16(all, _mm256_slli_epi16::<8>(odd));
        let (first, second) = (_mm256_unpacklo_epi16(even, odd), _mm256_unpackhi_epi16(even, odd));
        let rows = [
            _mm256_castsi256_si128(first),
            _mm256_castsi256_si128(second),
            _mm256_extracti128_si256::<1>(first),
            _mm256_extracti128_si256::<1>(second),
        ];
        for (sum, rows) in sums.iter_mut().zip(rows) {
            *sum = _mm256_add_epi32(*sum, _mm256_cvtepu16_epi32(rows));
        }
    }
    sums
}

/// `A` of the 32 rows of one block.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn block_sums(q: &ScanQuery, block: &[[u8; 32]]) -> [__m256i; 4] {
    let mut sums = table_sums(q.lut.as_chunks::<32>().0, block);
    if !q.lut_high.is_empty() {
        let high = table_sums(q.lut_high.as_chunks::<32>().0, block);
        for (sum, high) in sums.iter_mut().zip(high) {
            *sum = _mm256_add_epi32(*sum, _mm256_slli_epi32::<8>(high));
        }
    }
    sums
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn store_sums(sums: [__m256i; 4]) -> [u32; BLOCK_ROWS] {
    let mut rows = [0u32; BLOCK_ROWS];
    for (rows, sum) in rows.as_chunks_mut::<8>().0.iter_mut().zip(sums) {
        // SAFETY: rows has 8 values; the store is unaligned.
        unsafe { _mm256_storeu_si256(rows.as_mut_ptr().cast(), sum) }
    }
    rows
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn scan(q: &ScanQuery, packed: &[u8], out: &mut [u32]) {
    let columns = packed.as_chunks::<32>().0;
    for (block, out) in columns.chunks_exact(q.padded / 8).zip(out.chunks_mut(BLOCK_ROWS)) {
        out.copy_from_slice(&store_sums(block_sums(q, block))[..out.len()]);
    }
}

/// Register `k` of a factor column at one block; zeros past its end.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn factor(column: &[f32], first: usize, k: usize) -> __m256 {
    let start = first + k * 8;
    if start + 8 <= column.len() {
        // SAFETY: eight values from start are inside the column.
        unsafe { _mm256_loadu_ps(column.as_ptr().add(start)) }
    } else if start < column.len() {
        super::float::load_tail(&column[start..], 0)
    } else {
        _mm256_setzero_ps()
    }
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn estimates(a: &EstimateArgs<'_>, out: &mut Vec<Survivor>) {
    let n = a.columns.f_add.len();
    let t = &a.terms;
    let (zero, minus) = (_mm256_setzero_ps(), _mm256_set1_ps(-0.0));
    let (bias, quarter) = (_mm256_set1_epi32(a.query.bias), _mm256_set1_ps(a.query.quarter_step));
    let (g_add, g_abs) = (_mm256_set1_ps(t.g_add), _mm256_set1_ps(t.g_abs));
    let (alpha, beta) = (_mm256_set1_ps(t.alpha), _mm256_set1_ps(t.beta));
    let (scale, slack) = (_mm256_set1_ps(t.scale), _mm256_set1_ps(t.slack));
    let threshold = _mm256_set1_ps(a.threshold);
    let columns = a.packed.as_chunks::<32>().0;
    for (b, block) in columns.chunks_exact(a.query.padded / 8).enumerate() {
        let sums = block_sums(a.query, block);
        let first = b * BLOCK_ROWS;
        for k in 0..4 {
            let f_add = factor(a.columns.f_add, first, k);
            let f_rescale = factor(a.columns.f_rescale, first, k);
            let norm = factor(a.columns.norm, first, k);
            let twice = _mm256_sub_epi32(_mm256_add_epi32(sums[k], sums[k]), bias);
            let ip = _mm256_mul_ps(_mm256_cvtepi32_ps(twice), quarter);
            let est = _mm256_fmadd_ps(f_rescale, ip, _mm256_add_ps(f_add, g_add));
            let (x, y) = (_mm256_mul_ps(f_rescale, alpha), _mm256_mul_ps(norm, beta));
            // max returns its second operand for a NaN.
            let e2 = _mm256_max_ps(_mm256_fmsub_ps(x, x, _mm256_mul_ps(y, y)), zero);
            let e = _mm256_mul_ps(scale, _mm256_sqrt_ps(e2));
            let margin = _mm256_mul_ps(_mm256_add_ps(_mm256_andnot_ps(minus, f_add), g_abs), slack);
            let lower = _mm256_sub_ps(_mm256_sub_ps(est, e), margin);
            // Not greater, so that a NaN is kept.
            let mut mask = _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_NGT_UQ>(lower, threshold)) as u32;
            let start = first + k * 8;
            if mask == 0 || start >= n {
                continue;
            }
            if n - start < 8 {
                mask &= (1 << (n - start)) - 1;
            }
            let (mut sum_of, mut est_of, mut lower_of) = ([0u32; 8], [0.0f32; 8], [0.0f32; 8]);
            // SAFETY: the three arrays have 8 values each; the stores are unaligned.
            unsafe {
                _mm256_storeu_si256(sum_of.as_mut_ptr().cast(), sums[k]);
                _mm256_storeu_ps(est_of.as_mut_ptr(), est);
                _mm256_storeu_ps(lower_of.as_mut_ptr(), lower);
            }
            while mask != 0 {
                let i = mask.trailing_zeros() as usize;
                mask &= mask - 1;
                let index = (start + i) as u32;
                out.push(Survivor { index, sum: sum_of[i], est: est_of[i], lower: lower_of[i] });
            }
        }
    }
}
