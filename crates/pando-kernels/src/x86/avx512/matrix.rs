//! Blocked inner products as in the AVX2 file: tiles of 6 x 4 outputs, four passes of 16 lanes, 24 accumulators.

use std::arch::x86_64::*;

use super::float::dot;
use super::{avx2, fold16, load, load_tail};

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

/// The 24 inner products of 6 and 4 rows of length `d`.
#[inline]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn tile(a: &[f32], b: &[f32], d: usize) -> [[f32; TILE_N]; TILE_M] {
    let zero = _mm512_setzero_ps();
    // Lanes 16k..16k+16 of every output.
    let mut lanes = [[[zero; TILE_N]; TILE_M]; 4];
    let whole = d / 64 * 64;
    for (k, lanes) in lanes.iter_mut().enumerate() {
        let mut acc = [[zero; TILE_N]; TILE_M];
        for start in (0..whole).step_by(64) {
            let mut y = [zero; TILE_N];
            for j in 0..TILE_N {
                y[j] = sixteen(b, j * d + start + k * 16);
            }
            for i in 0..TILE_M {
                let x = sixteen(a, i * d + start + k * 16);
                for j in 0..TILE_N {
                    acc[i][j] = _mm512_fmadd_ps(x, y[j], acc[i][j]);
                }
            }
        }
        if whole < d {
            for i in 0..TILE_M {
                let x = load_tail(&a[i * d + whole..(i + 1) * d], k);
                for j in 0..TILE_N {
                    let y = load_tail(&b[j * d + whole..(j + 1) * d], k);
                    acc[i][j] = _mm512_fmadd_ps(x, y, acc[i][j]);
                }
            }
        }
        *lanes = acc;
    }
    let mut out = [[0.0; TILE_N]; TILE_M];
    for i in 0..TILE_M {
        let mut v = [_mm256_setzero_ps(); TILE_N];
        for j in 0..TILE_N {
            let (b0, b1) = (
                _mm512_add_ps(lanes[0][i][j], lanes[2][i][j]),
                _mm512_add_ps(lanes[1][i][j], lanes[3][i][j]),
            );
            v[j] = fold16(_mm512_add_ps(b0, b1));
        }
        out[i] = avx2::fold_four(v);
    }
    out
}

/// Sixteen values from `start`.
#[inline]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn sixteen(x: &[f32], start: usize) -> __m512 {
    match x[start..].first_chunk::<16>() {
        Some(x) => load(x, 0),
        None => _mm512_setzero_ps(),
    }
}
