//! The same tree for any number of threads, memory budget and instruction set (law 3).

mod common;

use common::{Rows, clustered, config, mix, with_kernels};
use pando_kernels::{Kernels, Metric, Simd};
use pando_tree::{Env, Report, Tree, advance, build};
use std::collections::BTreeSet;

fn run(metric: Metric, threads: usize, memory: usize, kernels: Kernels) -> (Tree, Tree, Report) {
    let dim = 72;
    let rows = Rows::new(dim, move |row| {
        let scale = if metric == Metric::Dot { 1.0 + (mix(row) % 9) as f32 } else { 1.0 };
        let place = if row >= 9000 { 1.5 } else { 0.0 };
        clustered(row, dim, 50, 0.6).into_iter().map(|x| (x + place) * scale).collect()
    });
    let cfg = config(dim, metric);
    let step = |env: &Env<'_>| {
        // Every fifth row never existed: row numbers have holes.
        let first: Vec<u64> = (0..9000).filter(|r| r % 5 != 0).collect();
        let tree = build(&cfg, &first, env).unwrap();
        let dead: BTreeSet<u64> = first.iter().copied().filter(|r| mix(*r).is_multiple_of(3)).collect();
        let more: Vec<u64> = (9000..12_000).collect();
        let (next, report) = advance(&cfg, tree.clone(), &more, &dead, env).unwrap();
        (tree, next, report)
    };
    with_kernels(&rows, threads, memory, kernels, step)
}

#[test]
fn threads_and_memory_do_not_matter() {
    for metric in [Metric::L2, Metric::Cosine, Metric::Dot] {
        let best = Kernels::detect();
        let one = run(metric, 1, 1 << 30, best);
        let report = format!("{metric:?}: {} splits, {} moved", one.2.splits, one.2.moved);
        assert!(one.2.splits > 0 && one.2.scrubbed > 0 && one.2.moved > 0, "{report}");
        let scalar = Kernels::new(Simd::Scalar).unwrap();
        for (threads, memory, kernels) in
            [(2, 1 << 30, best), (3, 1 << 14, best), (1, 0, best), (2, 300_000, best), (2, 1 << 30, scalar)]
        {
            let other = run(metric, threads, memory, kernels);
            assert!(other == one, "{metric:?}, {threads} threads, {memory} bytes, {}", kernels.simd());
        }
    }
}
