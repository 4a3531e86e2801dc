//! Blocked inner products of two sets of rows, each with the bits of `dot`.
//!
//! A tile of 3 x 4 outputs runs through the rows eight times, each time for 8 of the 64 lanes: 12 accumulators
//! and 7 loads for 12 multiply-adds. The lanes of a tile wait in a buffer and are folded together.

use std::arch::x86_64::*;

use super::float::{dot, load_tail};
use super::load;

/// Rows of `a` in a tile.
const TILE_M: usize = 3;
/// Rows of `b` in a tile.
const TILE_N: usize = 4;
/// Bytes of `b` that should stay in the L2 cache while all of `a` passes.
const PANEL: usize = 192 * 1024;

#[target_feature(enable = "avx2,fma")]
pub(super) fn dot_matrix(a: &[f32], b: &[f32], d: usize, out: &mut [f32]) {
    let (m, n) = (a.len() / d, b.len() / d);
    let panel = (PANEL / (4 * d)).next_multiple_of(TILE_N).max(4 * TILE_N);
    for j0 in (0..n).step_by(panel) {
        let j1 = n.min(j0 + panel);
        let mut i = 0;
        while i + TILE_M <= m {
            let rows: [&[f32]; TILE_M] = std::array::from_fn(|k| &a[(i + k) * d..(i + k + 1) * d]);
            let mut j = j0;
            while j + TILE_N <= j1 {
                let columns: [&[f32]; TILE_N] = std::array::from_fn(|k| &b[(j + k) * d..(j + k + 1) * d]);
                let values = tile(rows, columns);
                for (k, values) in values.iter().enumerate() {
                    out[(i + k) * n + j..(i + k) * n + j + TILE_N].copy_from_slice(values);
                }
                j += TILE_N;
            }
            for j in j..j1 {
                for (k, row) in rows.iter().enumerate() {
                    out[(i + k) * n + j] = dot(row, &b[j * d..(j + 1) * d]);
                }
            }
            i += TILE_M;
        }
        for i in i..m {
            for j in j0..j1 {
                out[i * n + j] = dot(&a[i * d..(i + 1) * d], &b[j * d..(j + 1) * d]);
            }
        }
    }
}

/// The 12 inner products of 3 and 4 rows of the same length.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn tile(a: [&[f32]; TILE_M], b: [&[f32]; TILE_N]) -> [[f32; TILE_N]; TILE_M] {
    let zero = _mm256_setzero_ps();
    // Lanes 8k..8k+8 of every output.
    let mut lanes = [[[zero; TILE_N]; TILE_M]; 8];
    let chunks = a[0].len() / 64;
    let a_chunks = a.map(|x| &x.as_chunks::<64>().0[..chunks]);
    let b_chunks = b.map(|x| &x.as_chunks::<64>().0[..chunks]);
    let tail = chunks * 64;
    for k in 0..8 {
        let mut acc = [[zero; TILE_N]; TILE_M];
        for c in 0..chunks {
            let y: [__m256; TILE_N] = [
                load(&b_chunks[0][c], k),
                load(&b_chunks[1][c], k),
                load(&b_chunks[2][c], k),
                load(&b_chunks[3][c], k),
            ];
            for i in 0..TILE_M {
                let x = load(&a_chunks[i][c], k);
                for j in 0..TILE_N {
                    acc[i][j] = _mm256_fmadd_ps(x, y[j], acc[i][j]);
                }
            }
        }
        if k * 8 < a[0].len() - tail {
            for i in 0..TILE_M {
                let x = load_tail(&a[i][tail..], k);
                for j in 0..TILE_N {
                    acc[i][j] = _mm256_fmadd_ps(x, load_tail(&b[j][tail..], k), acc[i][j]);
                }
            }
        }
        lanes[k] = acc;
    }
    let mut out = [[0.0; TILE_N]; TILE_M];
    for i in 0..TILE_M {
        let mut v = [zero; TILE_N];
        for j in 0..TILE_N {
            let l = |k: usize| lanes[k][i][j];
            let b0 = _mm256_add_ps(_mm256_add_ps(l(0), l(4)), _mm256_add_ps(l(2), l(6)));
            let b1 = _mm256_add_ps(_mm256_add_ps(l(1), l(5)), _mm256_add_ps(l(3), l(7)));
            v[j] = _mm256_add_ps(b0, b1);
        }
        out[i] = fold_four(v);
    }
    out
}

/// The ends of four folds at once: 8 -> 4 -> 2 -> 1 lanes, and + 0.0.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn fold_four(v: [__m256; TILE_N]) -> [f32; TILE_N] {
    let half = |a: __m256| _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
    let [a, b, c, d] = v.map(half);
    // Lanes 0 + 2 and 1 + 3 of two outputs in one register.
    let ab = _mm_add_ps(_mm_movelh_ps(a, b), _mm_movehl_ps(b, a));
    let cd = _mm_add_ps(_mm_movelh_ps(c, d), _mm_movehl_ps(d, c));
    let sum = _mm_add_ps(_mm_shuffle_ps::<0x88>(ab, cd), _mm_shuffle_ps::<0xDD>(ab, cd));
    let sum = _mm_add_ps(sum, _mm_setzero_ps());
    let mut out = [0.0; TILE_N];
    // SAFETY: out has 4 values; the store is unaligned.
    unsafe { _mm_storeu_ps(out.as_mut_ptr(), sum) }
    out
}
