//! Blocked inner products as in the AVX2 file: tiles of 6 x 4 outputs, four passes of 16 lanes, 24 accumulators.

use std::arch::x86_64::*;

use super::float::dot;
use super::{avx2, fold16, load_tail};

/// Rows of `a` in a tile.
const TILE_M: usize = 6;
/// Rows of `b` in a tile.
const TILE_N: usize = 4;
/// Bytes of `b` that should stay in the L2 cache while all of `a` passes.
const PANEL: usize = 256 * 1024;

#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
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
type Tile = [[__m512; TILE_N]; TILE_M];

/// Lanes 16k..16k+16 of the 24 inner products of 6 and 4 rows of length `d`.
#[inline]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn pass(a: &[f32], b: &[f32], d: usize, k: usize) -> Tile {
    assert!(a.len() == TILE_M * d && b.len() == TILE_N * d && k < 4);
    let mut acc = [[_mm512_setzero_ps(); TILE_N]; TILE_M];
    let whole = d / 64 * 64;
    let (pa, pb) = (a.as_ptr(), b.as_ptr());
    let mut at = 16 * k;
    while at < whole {
        // SAFETY: at is 16k (k < 4) plus a multiple of 64 and less than `whole`, so at + 16 <= whole <= d:
        // sixteen values from there lie in each of the 6 and 4 rows.
        unsafe {
            let mut y = [_mm512_setzero_ps(); TILE_N];
            for j in 0..TILE_N {
                y[j] = _mm512_loadu_ps(pb.add(j * d + at));
            }
            for i in 0..TILE_M {
                let x = _mm512_loadu_ps(pa.add(i * d + at));
                for j in 0..TILE_N {
                    acc[i][j] = _mm512_fmadd_ps(x, y[j], acc[i][j]);
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
                acc[i][j] = _mm512_fmadd_ps(x, y, acc[i][j]);
            }
        }
    }
    acc
}

#[inline]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn add(mut a: Tile, b: Tile) -> Tile {
    for i in 0..TILE_M {
        for j in 0..TILE_N {
            a[i][j] = _mm512_add_ps(a[i][j], b[i][j]);
        }
    }
    a
}

/// The 24 inner products of 6 and 4 rows of length `d`.
#[inline]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn tile(a: &[f32], b: &[f32], d: usize) -> [[f32; TILE_N]; TILE_M] {
    // Folding 64 -> 32 adds k and k + 2, 32 -> 16 then k and k + 1.
    let sum = add(add(pass(a, b, d, 0), pass(a, b, d, 2)), add(pass(a, b, d, 1), pass(a, b, d, 3)));
    let mut out = [[0.0; TILE_N]; TILE_M];
    for i in 0..TILE_M {
        let mut v = [_mm256_setzero_ps(); TILE_N];
        for j in 0..TILE_N {
            v[j] = fold16(sum[i][j]);
        }
        out[i] = avx2::fold_four(v);
    }
    out
}
