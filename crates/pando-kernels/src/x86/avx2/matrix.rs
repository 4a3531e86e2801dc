//! Blocked inner products of two sets of rows, each with the bits of `dot`.
//!
//! A tile of 3 x 4 outputs runs through the rows eight times, each time for 8 of the 64 lanes: 12 accumulators
//! and 7 loads for 12 multiply-adds. The lanes of a tile wait in a buffer and are folded together.

use std::arch::x86_64::*;

use super::float::{dot, load_tail};

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
            let mut j = j0;
            while j + TILE_N <= j1 {
                let values = tile(&a[i * d..(i + TILE_M) * d], &b[j * d..(j + TILE_N) * d], d);
                for (k, values) in values.iter().enumerate() {
                    out[(i + k) * n + j..(i + k) * n + j + TILE_N].copy_from_slice(values);
                }
                j += TILE_N;
            }
            for j in j..j1 {
                for k in i..i + TILE_M {
                    out[k * n + j] = dot(&a[k * d..(k + 1) * d], &b[j * d..(j + 1) * d]);
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

/// One register for each output of a tile.
type Tile = [[__m256; TILE_N]; TILE_M];

/// Lanes 8k..8k+8 of the 12 inner products of 3 and 4 rows of length `d`.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn pass(a: &[f32], b: &[f32], d: usize, k: usize) -> Tile {
    assert!(a.len() == TILE_M * d && b.len() == TILE_N * d && k < 8);
    let mut acc = [[_mm256_setzero_ps(); TILE_N]; TILE_M];
    let whole = d / 64 * 64;
    let (pa, pb) = (a.as_ptr(), b.as_ptr());
    let mut at = 8 * k;
    while at < whole {
        // SAFETY: at is 8k (k < 8) plus a multiple of 64 and less than `whole`, so at + 8 <= whole <= d: eight
        // values from there lie in each of the 3 and 4 rows.
        unsafe {
            // Three registers of a and one of b: with 12 sums just 16.
            let mut x = [_mm256_setzero_ps(); TILE_M];
            for i in 0..TILE_M {
                x[i] = _mm256_loadu_ps(pa.add(i * d + at));
            }
            for j in 0..TILE_N {
                let y = _mm256_loadu_ps(pb.add(j * d + at));
                for i in 0..TILE_M {
                    acc[i][j] = _mm256_fmadd_ps(x[i], y, acc[i][j]);
                }
            }
        }
        at += 64;
    }
    if at < d {
        for i in 0..TILE_M {
            let x = load_tail(&a[i * d + whole..(i + 1) * d], k);
            for j in 0..TILE_N {
                let y = load_tail(&b[j * d + whole..(j + 1) * d], k);
                acc[i][j] = _mm256_fmadd_ps(x, y, acc[i][j]);
            }
        }
    }
    acc
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn add(mut a: Tile, b: Tile) -> Tile {
    for i in 0..TILE_M {
        for j in 0..TILE_N {
            a[i][j] = _mm256_add_ps(a[i][j], b[i][j]);
        }
    }
    a
}

/// The 12 inner products of 3 and 4 rows of length `d`.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn tile(a: &[f32], b: &[f32], d: usize) -> [[f32; TILE_N]; TILE_M] {
    // Folding 64 -> 32 adds k and k + 4, 32 -> 16 then k and k + 2, 16 -> 8 then k and k + 1.
    let even = add(add(pass(a, b, d, 0), pass(a, b, d, 4)), add(pass(a, b, d, 2), pass(a, b, d, 6)));
    let odd = add(add(pass(a, b, d, 1), pass(a, b, d, 5)), add(pass(a, b, d, 3), pass(a, b, d, 7)));
    let sum = add(even, odd);
    let mut out = [[0.0; TILE_N]; TILE_M];
    for i in 0..TILE_M {
        out[i] = fold_four(sum[i]);
    }
    out
}

/// The ends of four folds at once: 8 -> 4 -> 2 -> 1 lanes, and + 0.0.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(in crate::x86) fn fold_four(v: [__m256; TILE_N]) -> [f32; TILE_N] {
    let mut h = [_mm_setzero_ps(); TILE_N];
    for j in 0..TILE_N {
        h[j] = _mm_add_ps(_mm256_castps256_ps128(v[j]), _mm256_extractf128_ps::<1>(v[j]));
    }
    let [a, b, c, d] = h;
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
