//! The scan of packed 1-bit codes and the navigation over 4-bit codes.

use super::code::nibble_dot;
use crate::packed::BLOCK_ROWS;
use crate::query::{ScanQuery, Survivor};
use crate::table::{EstimateArgs, NavArgs};

/// Sums of one block of 32 rows.
fn block_sums(q: &ScanQuery, block: &[u8]) -> [u32; BLOCK_ROWS] {
    let mut sums = [q.least; BLOCK_ROWS];
    for (column, bytes) in block.chunks_exact(BLOCK_ROWS).enumerate() {
        let low = &q.lut[column * 32..column * 32 + 32];
        for (sum, byte) in sums.iter_mut().zip(bytes) {
            let (a, b) = (usize::from(byte & 15), usize::from(byte >> 4) + 16);
            *sum += u32::from(low[a]) + u32::from(low[b]);
        }
        if !q.lut_high.is_empty() {
            let high = &q.lut_high[column * 32..column * 32 + 32];
            for (sum, byte) in sums.iter_mut().zip(bytes) {
                let (a, b) = (usize::from(byte & 15), usize::from(byte >> 4) + 16);
                *sum += (u32::from(high[a]) + u32::from(high[b])) << 8;
            }
        }
    }
    sums
}

pub(crate) fn scan(q: &ScanQuery, packed: &[u8], out: &mut [u32]) {
    let block_len = q.padded * 4;
    for (block, out) in packed.chunks_exact(block_len).zip(out.chunks_mut(BLOCK_ROWS)) {
        out.copy_from_slice(&block_sums(q, block)[..out.len()]);
    }
}

/// Whether a row is dropped, its estimate and lower bound; every path does exactly these operations.
fn epilogue(a: &EstimateArgs<'_>, sum: u32, row: usize) -> (bool, f32, f32) {
    let t = &a.terms;
    let (f_add, f_rescale, norm) = (a.columns.f_add[row], a.columns.f_rescale[row], a.columns.norm[row]);
    let ip = (2 * sum as i32 - a.query.bias) as f32 * a.query.quarter_step;
    let sizes = f_add.abs() + t.g_abs;
    let x = f_rescale * t.alpha;
    let y = norm * t.beta;
    let e2 = x.mul_add(x, -(y * y));
    let d = f_rescale.mul_add(ip, f_add + (t.g_add - a.threshold));
    let n = (-t.slack).mul_add(sizes, d) * t.inverse;
    let dropped = n > 0.0 && n * n > e2;
    let est = f_rescale.mul_add(ip, f_add + t.g_add);
    // Not f32::max: a NaN must become 0 as in the vector instruction.
    let e = t.scale * (if e2 > 0.0 { e2 } else { 0.0 }).sqrt();
    let lower = (-t.slack).mul_add(sizes, est - e);
    (dropped, est, lower)
}

pub(crate) fn estimates(a: &EstimateArgs<'_>, out: &mut Vec<Survivor>) {
    let n = a.columns.f_add.len();
    let block_len = a.query.padded * 4;
    for (b, block) in a.packed.chunks_exact(block_len).enumerate() {
        let sums = block_sums(a.query, block);
        let first = b * BLOCK_ROWS;
        for row in first..n.min(first + BLOCK_ROWS) {
            let sum = sums[row - first];
            let (dropped, est, lower) = epilogue(a, sum, row);
            if !dropped {
                out.push(Survivor { index: row as u32, sum, est, lower });
            }
        }
    }
}

pub(crate) fn nav(a: &NavArgs<'_>, out: &mut [f32]) {
    let len = a.query.padded / 2;
    for (j, (code, o)) in a.codes.chunks_exact(len).zip(out).enumerate() {
        let t = 2 * nibble_dot(code, &a.query.w) - 15 * a.query.w_sum;
        *o = a.w[j].mul_add(t as f32 * a.query.half_step, a.add[j]);
    }
}
