//! Exact neighbours by plain arithmetic: shares no code with the engine.

use std::cmp::Ordering;

use pando_kernels::Metric;

use crate::npy::Matrix;

/// Partial sums, so that the compiler may use vectors.
const LANES: usize = 16;

/// The `k` nearest live rows of each query, nearest first; -1 fills rows that are short. `dead` is empty or says of each
/// row whether it is left out.
pub fn nearest(
    metric: Metric,
    base: &Matrix<f32>,
    dead: &[bool],
    queries: &Matrix<f32>,
    k: usize,
) -> Vec<Vec<i64>> {
    let norms: Vec<f32> = (0..base.rows()).map(|row| dot(base.row(row), base.row(row))).collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut out = vec![Vec::new(); queries.rows()];
    let share = out.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        for (part, outs) in out.chunks_mut(share).enumerate() {
            let norms = &norms;
            scope.spawn(move || {
                for (at, out) in outs.iter_mut().enumerate() {
                    *out = one(metric, base, norms, dead, queries.row(part * share + at), k);
                }
            });
        }
    });
    out
}

fn one(
    metric: Metric,
    base: &Matrix<f32>,
    norms: &[f32],
    dead: &[bool],
    query: &[f32],
    k: usize,
) -> Vec<i64> {
    let mut all: Vec<(f32, i64)> = Vec::with_capacity(base.rows());
    for row in 0..base.rows() {
        if dead.get(row).copied().unwrap_or(false) {
            continue;
        }
        let inner = dot(base.row(row), query);
        let distance = match metric {
            Metric::Dot => -inner,
            Metric::L2 => norms[row] - 2.0 * inner,
            Metric::Cosine => -inner / norms[row].sqrt(),
        };
        all.push((distance, row as i64));
    }
    let order = |a: &(f32, i64), b: &(f32, i64)| -> Ordering { a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)) };
    let kept = k.min(all.len());
    if kept > 0 && kept < all.len() {
        all.select_nth_unstable_by(kept - 1, order);
    }
    all.truncate(kept);
    all.sort_by(order);
    let mut out: Vec<i64> = all.into_iter().map(|(_, row)| row).collect();
    out.resize(k, -1);
    out
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0f32; LANES];
    let (a, a_rest) = a.as_chunks::<LANES>();
    let (b, b_rest) = b.as_chunks::<LANES>();
    for (a, b) in a.iter().zip(b) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    sums.iter().sum::<f32>() + a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum::<f32>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_each_metric() {
        let base = Matrix { columns: 2, values: vec![1.0, 0.0, 10.0, 1.0, 0.0, 1.0] };
        let queries = Matrix { columns: 2, values: vec![1.0, 0.1] };
        let near = |metric| nearest(metric, &base, &[], &queries, 4).remove(0);
        assert_eq!(near(Metric::L2), [0, 2, 1, -1]);
        assert_eq!(near(Metric::Dot), [1, 0, 2, -1]);
        assert_eq!(near(Metric::Cosine), [1, 0, 2, -1]);
        let alive = nearest(Metric::Dot, &base, &[false, true, false], &queries, 2).remove(0);
        assert_eq!(alive, [0, 2]);
    }
}
