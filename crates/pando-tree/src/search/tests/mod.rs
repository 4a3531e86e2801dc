//! The search against brute force, on an index built by a plain k-means.

mod away;
mod calibration;
mod edges;
mod fixture;
mod full;
mod navigation;
mod recall;

use fixture::{Index, Rng, Shape, Vectors, mixture};
use pando_kernels::{Kernels, Metric};

const METRICS: [Metric; 3] = [Metric::L2, Metric::Cosine, Metric::Dot];

fn shape(metric: Metric) -> Shape {
    Shape { metric, leaf: 60, copies: 2, refine: true, group: 16 }
}

/// An index of `n` rows of a mixture, and `queries` more rows of it.
fn sample(n: usize, dim: usize, queries: usize, shape: Shape) -> (Index, Vec<Vec<f32>>) {
    let mut rng = Rng(n as u64 * 31 + dim as u64);
    let mut data = mixture(&mut rng, n + queries, dim, 40, 0.6);
    let rest = data.split_off(n * dim);
    let index = Index::build(Kernels::detect(), Vectors { dim, data }, shape);
    (index, rest.chunks_exact(dim).map(<[f32]>::to_vec).collect())
}

fn recall(found: &[u64], truth: &[u64]) -> f64 {
    found.iter().filter(|row| truth.contains(row)).count() as f64 / truth.len().max(1) as f64
}
