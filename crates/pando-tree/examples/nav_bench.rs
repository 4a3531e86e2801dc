//! Times the navigation of one query: from the vector to the first wave of leaves, in trees of random centroids.
//!
//! `cargo run --release -p pando-tree --example nav_bench [-- LEAVES DIMENSION]` (17,000 and 1,024 unless said; twenty leaves a
//! node). `PANDO_SIMD` chooses the kernels.
#![allow(clippy::disallowed_methods)] // A program that measures: the lints are for the library.

use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use pando_kernels::{Kernels, Metric};
use pando_tree::search::{Effort, Frame, Nav, NavBuilder, SearchParams, Searcher, encode_nav_child};

const BRANCHING: usize = 20;
const QUERIES: usize = 200;
const RUNS: usize = 15;

fn main() -> Result<(), Box<dyn Error>> {
    let mut numbers = std::env::args().skip(1).map(|a| a.parse::<usize>());
    let leaves = numbers.next().transpose()?.unwrap_or(17_000);
    let dim = numbers.next().transpose()?.unwrap_or(1024);
    let kernels = Kernels::from_env()?;
    let frame = Arc::new(Frame::new(kernels, Metric::L2, 1, vec![0.0; dim]));
    let mut random = Random(1);
    let nav = random_tree(&frame, leaves, &mut random)?;
    let queries: Vec<Vec<f32>> = (0..QUERIES).map(|_| random.vector(dim)).collect();
    let params = SearchParams { effort: Effort::Leaves(8), ..Default::default() };
    let mut searcher = Searcher::new();
    let mut runs: Vec<f64> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            for query in &queries {
                searcher.begin(&nav, query, &params);
                black_box(searcher.next_wave(&nav));
            }
            start.elapsed().as_secs_f64() / QUERIES as f64 * 1e6
        })
        .collect();
    runs.sort_by(f64::total_cmp);
    println!(
        "{leaves} leaves of {dim} dimensions, {:.1} MB of codes, {} kernels: {:.1} us a query (median {:.1})",
        nav.bytes() as f64 / 1e6,
        kernels.simd(),
        runs[0],
        runs[RUNS / 2]
    );
    Ok(())
}

/// Two levels: nodes around random centroids, leaves around their node's.
fn random_tree(frame: &Arc<Frame>, leaves: usize, random: &mut Random) -> Result<Nav, Box<dyn Error>> {
    let nodes: Vec<Vec<f32>> = (0..leaves.div_ceil(BRANCHING)).map(|_| random.vector(frame.dim())).collect();
    let mut builder = NavBuilder::new(frame.clone());
    push(&mut builder, frame, 0, &nodes)?;
    let mut left = leaves;
    for node in &nodes {
        let here = BRANCHING.min(left);
        left -= here;
        let children: Vec<Vec<f32>> = (0..here)
            .map(|_| random.vector(frame.dim()).iter().zip(node).map(|(x, c)| c + 0.5 * x).collect())
            .collect();
        push(&mut builder, frame, 1, &children)?;
    }
    Ok(builder.finish()?)
}

fn push(
    builder: &mut NavBuilder,
    frame: &Frame,
    level: usize,
    children: &[Vec<f32>],
) -> Result<(), Box<dyn Error>> {
    let row = frame.padded() / 2;
    let mut nibbles = vec![0; children.len() * row];
    let constants: Vec<_> = children
        .iter()
        .zip(nibbles.chunks_mut(row))
        .map(|(centroid, nibbles)| encode_nav_child(frame, centroid, 1.0, nibbles))
        .collect();
    let scale: Vec<f32> = constants.iter().map(|c| c.scale).collect();
    let add: Vec<f32> = constants.iter().map(|c| c.add).collect();
    let r2: Vec<f32> = constants.iter().map(|c| c.r2).collect();
    Ok(builder.push_node(level, &nibbles, &scale, &add, &r2)?)
}

/// A linear congruential generator: enough for noise.
struct Random(u64);

impl Random {
    fn vector(&mut self, dim: usize) -> Vec<f32> {
        let mut next = || {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 40) as f32 / 8_388_608.0 - 1.0
        };
        (0..dim).map(|_| next()).collect()
    }
}
