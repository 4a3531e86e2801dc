//! f64 sums over f32 data in 16 virtual lanes, multiply then add, folded 16 -> 8 -> ... -> 1. The product of two f32 is exact
//! in f64: a fused step gives the same bits, other than for the squares of differences.

/// Virtual lanes of the f64 kernels.
pub(crate) const LANES: usize = 16;

fn fold(acc: &mut [f64; LANES]) -> f64 {
    let mut width = LANES / 2;
    while width > 0 {
        for l in 0..width {
            acc[l] += acc[l + width];
        }
        width /= 2;
    }
    acc[0] + 0.0
}

pub(crate) fn dot_f64(a: &[f32], b: &[f32]) -> f64 {
    let mut acc = [0.0f64; LANES];
    for (x, y) in a.chunks(LANES).zip(b.chunks(LANES)) {
        for (lane, (x, y)) in acc.iter_mut().zip(x.iter().zip(y)) {
            *lane += f64::from(*x) * f64::from(*y);
        }
    }
    fold(&mut acc)
}

pub(crate) fn l2_f64(a: &[f32], b: &[f32]) -> f64 {
    let mut acc = [0.0f64; LANES];
    for (x, y) in a.chunks(LANES).zip(b.chunks(LANES)) {
        for (lane, (x, y)) in acc.iter_mut().zip(x.iter().zip(y)) {
            let d = f64::from(*x) - f64::from(*y);
            *lane += d * d;
        }
    }
    fold(&mut acc)
}

pub(crate) fn dot_norm2_f64(a: &[f32], b: &[f32]) -> (f64, f64) {
    (dot_f64(a, b), dot_f64(b, b))
}
