//! The table of kernel functions of one instruction set, and the plain structs they exchange.
//!
//! The pointers are `unsafe fn` because a SIMD function may run only on a CPU that has its instructions and
//! because kernels trust the lengths that [`crate::Kernels`] has checked. Each SIMD file fills one table.

use crate::query::{BitColumns, NavQuery, ScanQuery, ScanTerms, Survivor};

/// Sums of a 1-bit code: |r|^2, sum of |r_i|, sum of sign(r_i) c_i.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BitSums {
    pub norm2: f32,
    pub abs: f32,
    pub signed_c: f32,
}

/// Sums of a multi-bit code with odd levels o: sum of |x_i| o_i, of o_i^2, of sign(x_i) o_i c_i.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RaySums {
    pub num: f32,
    pub den: f32,
    pub signed_c: f32,
}

/// Sums over a quantised query: of u, of min(u, max - u), and the largest sum of |2u - max| over 8 dimensions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByteSums {
    pub sum: u32,
    pub least: u32,
    pub widest: u32,
}

/// Checked input of a scan with estimates. `packed` holds whole blocks, the columns one value a row.
pub(crate) struct EstimateArgs<'a> {
    pub query: &'a ScanQuery,
    pub packed: &'a [u8],
    pub columns: BitColumns<'a>,
    pub terms: ScanTerms,
    pub threshold: f32,
    /// Bytes that will be scanned next: a hint, nothing is read.
    pub ahead: &'a [u8],
}

/// Checked input of a navigation: `codes` holds one code an output, `w` and `add` one value each.
pub(crate) struct NavArgs<'a> {
    pub query: &'a NavQuery,
    pub codes: &'a [u8],
    pub w: &'a [f32],
    pub add: &'a [f32],
}

/// One instruction set's functions.
#[allow(clippy::type_complexity)] // Plain signatures say more here than aliases would.
pub(crate) struct Table {
    /// (a, b), same length.
    pub l2: unsafe fn(&[f32], &[f32]) -> f32,
    /// (a, b), same length.
    pub dot: unsafe fn(&[f32], &[f32]) -> f32,
    /// (a, b), same length: a.b and b.b.
    pub dot_norm2: unsafe fn(&[f32], &[f32]) -> (f32, f32),
    /// (q, rows, out): rows.len() = q.len() * out.len(), q not empty.
    pub l2_rows: unsafe fn(&[f32], &[f32], &mut [f32]),
    /// As `l2_rows`.
    pub dot_rows: unsafe fn(&[f32], &[f32], &mut [f32]),
    /// (a, b, d, out): a of m * d, b of n * d, out of m * n, d > 0.
    pub dot_matrix: unsafe fn(&[f32], &[f32], usize, &mut [f32]),
    /// (a, b), same length.
    pub l2_f64: unsafe fn(&[f32], &[f32]) -> f64,
    /// (a, b), same length.
    pub dot_f64: unsafe fn(&[f32], &[f32]) -> f64,
    /// (a, b), same length: a.b and b.b.
    pub dot_norm2_f64: unsafe fn(&[f32], &[f32]) -> (f64, f64),
    /// (x, masks), same length, a multiple of 64.
    pub flip: unsafe fn(&mut [f32], &[u32]),
    /// (x, scale), length a power of two >= 64.
    pub fht: unsafe fn(&mut [f32], f32),
    /// (x, scale), length a multiple of 64.
    pub kac: unsafe fn(&mut [f32], f32),
    /// (r, c, code), r and c of the same length, a multiple of 64, code of an eighth of it.
    pub bits: unsafe fn(&[f32], &[f32], &mut [u8]) -> BitSums,
    /// (x, t, top), length a multiple of 64, t and x finite, top in 0..=15.
    pub ray: unsafe fn(&[f32], f32, f32) -> RaySums,
    /// (x, c, t, top, bias, nibbles), nibbles of half the length.
    pub ray_encode: unsafe fn(&[f32], &[f32], f32, f32, u8, &mut [u8]) -> RaySums,
    /// (nibbles, w), w of twice the length, a multiple of 64.
    pub nibble_dot: unsafe fn(&[u8], &[i8]) -> i32,
    /// (x), length a multiple of 64.
    pub max_abs: unsafe fn(&[f32]) -> f32,
    /// (x, [scale, offset, low, high], out), same length, a multiple of 64.
    pub quantise: unsafe fn(&[f32], [f32; 4], &mut [u8]),
    /// (u, max): u at most max, length a multiple of 64.
    pub byte_sums: unsafe fn(&[u8], u8) -> ByteSums,
    /// (u, max, lut): u at most max <= 63, length a multiple of 64, lut of 4 times the length.
    pub byte_tables: unsafe fn(&[u8], u8, &mut [u8]),
    /// (query, packed, out): packed holds whole blocks for out.len() rows.
    pub scan: unsafe fn(&ScanQuery, &[u8], &mut [u32]),
    /// Appends survivors in row order.
    pub estimates: unsafe fn(&EstimateArgs<'_>, &mut Vec<Survivor>),
    /// One output a code.
    pub nav: unsafe fn(&NavArgs<'_>, &mut [f32]),
}
