//! f32 sums in 64 virtual lanes: element i goes to lane i mod 64 by a fused multiply-add, then the lanes fold
//! 64 -> 32 -> ... -> 1 (lane l takes lane l + width). The end adds +0.0, so that a zero is always +0.0 and
//! lanes past the tail may be skipped.

/// Virtual lanes of the f32 kernels.
pub(crate) const LANES: usize = 64;

/// Folds the lanes in the fixed order.
#[inline]
pub(crate) fn fold(acc: &mut [f32; LANES]) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for l in 0..width {
            acc[l] += acc[l + width];
        }
        width /= 2;
    }
    acc[0] + 0.0
}

pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut acc = [0.0f32; LANES];
    for (x, y) in a.chunks(LANES).zip(b.chunks(LANES)) {
        for (lane, (x, y)) in acc.iter_mut().zip(x.iter().zip(y)) {
            *lane = x.mul_add(*y, *lane);
        }
    }
    fold(&mut acc)
}

pub(crate) fn l2(a: &[f32], b: &[f32]) -> f32 {
    let mut acc = [0.0f32; LANES];
    for (x, y) in a.chunks(LANES).zip(b.chunks(LANES)) {
        for (lane, (x, y)) in acc.iter_mut().zip(x.iter().zip(y)) {
            let d = x - y;
            *lane = d.mul_add(d, *lane);
        }
    }
    fold(&mut acc)
}

pub(crate) fn dot_norm2(a: &[f32], b: &[f32]) -> (f32, f32) {
    (dot(a, b), dot(b, b))
}

pub(crate) fn l2_rows(q: &[f32], rows: &[f32], out: &mut [f32]) {
    for (row, o) in rows.chunks_exact(q.len()).zip(out) {
        *o = l2(q, row);
    }
}

pub(crate) fn dot_rows(q: &[f32], rows: &[f32], out: &mut [f32]) {
    for (row, o) in rows.chunks_exact(q.len()).zip(out) {
        *o = dot(q, row);
    }
}

pub(crate) fn dot_matrix(a: &[f32], b: &[f32], d: usize, out: &mut [f32]) {
    let n = b.len() / d;
    if n == 0 {
        return;
    }
    for (x, o) in a.chunks_exact(d).zip(out.chunks_exact_mut(n)) {
        dot_rows(x, b, o);
    }
}
