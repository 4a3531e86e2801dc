//! The right answers, the slow and plain way.

use crate::data::Vectors;

/// Distance by the contract: squared Euclidean, 1 - cosine, or minus the inner product.
pub fn distance(metric: &str, q: &[f32], x: &[f32]) -> f64 {
    let (mut dot, mut qq, mut xx, mut l2) = (0.0f64, 0.0f64, 0.0f64, 0.0f64);
    for (&a, &b) in q.iter().zip(x) {
        let (a, b) = (f64::from(a), f64::from(b));
        dot += a * b;
        qq += a * a;
        xx += b * b;
        l2 += (a - b) * (a - b);
    }
    match metric {
        "l2" => l2,
        "cosine" => 1.0 - dot / (qq * xx).sqrt(),
        "dot" => -dot,
        other => panic!("no metric {other}"),
    }
}

/// The `k` nearest rows among those that `live` accepts: (row, distance), ties by row.
pub fn nearest(
    metric: &str,
    q: &[f32],
    base: &Vectors,
    k: usize,
    live: impl Fn(usize) -> bool,
) -> Vec<(u64, f64)> {
    let mut all: Vec<(u64, f64)> =
        (0..base.len()).filter(|&i| live(i)).map(|i| (i as u64, distance(metric, q, base.row(i)))).collect();
    all.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
    all.truncate(k);
    all
}

/// Share of `truth` that is in `found`.
pub fn recall(found: &[u64], truth: &[u64]) -> f64 {
    let hits = truth.iter().filter(|t| found.contains(t)).count();
    hits as f64 / truth.len().max(1) as f64
}
