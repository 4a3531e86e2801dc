//! Builds an index of a .npy file in memory and measures its search: recall at several targets, queries a second on
//! one thread, work per query.
//!
//! ```text
//! cargo run --release -p pando-tree --example search_bench -- --base base_f16.npy --queries queries_f16.npy \
//!     --truth gt_cosine_ids.npy --metric cosine [--queries q2.npy --truth gt2.npy] [--k 10,100] [--targets 0.95,0.99]
//!     [--limit N] [--copies 2] [--refine on|off] [--cache FILE] [--effort leaves:N|margin:M] [--eps0 2.5]
//! ```
//! Rows are numbered by their place. `--cache` keeps the built index in a file of this program's own.
#![allow(clippy::disallowed_methods)] // A program that measures: the lints are for the library.

mod arguments;
mod index;
mod npy;

use std::error::Error;
use std::sync::LazyLock;
use std::time::Instant;

use arguments::Arguments;
use index::Index;
use pando_kernels::{ExactQuery, Kernels, prefetch};
use pando_tree::search::calibrate::{K_STEPS, TARGETS, calibrate, sample_rows};
use pando_tree::search::{Counters, Effort, MarginTable, NoMask, SearchParams, Searcher, effort_for};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse()?;
    let kernels = Kernels::from_env()?;
    let pool = rayon::ThreadPoolBuilder::new().build()?;
    let start = Instant::now();
    let index = Index::open(&arguments, kernels, &pool)?;
    let codes: usize = index.leaves.iter().map(|l| l.rows.len()).sum();
    println!(
        "{} rows x {}, {} leaves of {:.0} codes, {} levels, {} kernels, ready in {:.1} s",
        index.len(),
        index.dim,
        index.nav.leaves(),
        codes as f64 / index.nav.leaves() as f64,
        index.nav.levels(),
        kernels.simd(),
        start.elapsed().as_secs_f64()
    );

    let mut table = None;
    if !arguments.targets.is_empty() {
        let start = Instant::now();
        let sample = sample_rows(0, 0..index.len() as u64, index.len() as u64);
        let margins = calibrate(&index.nav, &sample, &index, &index.vectors, &NoMask, &pool)?;
        println!("calibrated with {} rows in {:.2} s", sample.len(), start.elapsed().as_secs_f64());
        print_table(&margins);
        table = Some(margins);
    }

    for (queries, truth) in &arguments.queries {
        println!("\n{}", queries.display());
        let queries = npy::read(queries)?;
        let truth = npy::read(truth)?;
        if queries.columns != index.dim || truth.rows < queries.rows {
            return Err("queries and truth do not fit the base".into());
        }
        println!(
            "{:>16} {:>5} {:>7} {:>6} {:>6} {:>8} {:>7} {:>7} {:>8} {:>8} {:>8}",
            "effort", "k", "recall", "p5", "waves", "leaves", "p99", "codes", "refined", "vectors", "QPS"
        );
        for &k in &arguments.k {
            let mut efforts: Vec<(String, Effort)> = arguments
                .targets
                .iter()
                .map(|&target| {
                    (format!("{target}"), effort_for(table.as_ref(), k, target, index.len() as u64))
                })
                .collect();
            efforts.extend(arguments.efforts.iter().map(|e| (format!("{e:?}"), *e)));
            for (name, effort) in efforts {
                let params = SearchParams { k, effort, eps0: arguments.eps0 };
                measure(&index, &queries, &truth, &params, &name, arguments.seconds);
            }
        }
    }
    Ok(())
}

fn print_table(table: &MarginTable) {
    println!("{:>6} {}", "k", TARGETS.map(|t| format!("{t:>8}")).join(" "));
    for (k, row) in K_STEPS.iter().zip(&table.margins) {
        println!("{k:>6} {}", row.map(|m| format!("{m:>8.4}")).join(" "));
    }
}

/// Answers all queries once for the recall, then again and again for the speed.
fn measure(
    index: &Index,
    queries: &npy::Array,
    truth: &npy::Array,
    params: &SearchParams,
    name: &str,
    seconds: f64,
) {
    let k = params.k;
    let mut runner = Runner::default();
    let mut recalls = Vec::new();
    let mut total = Counters::default();
    let mut leaves = Vec::new();
    for q in 0..queries.rows {
        let found = runner.run(index, queries.row(q), params);
        let truth = &truth.row(q)[..k.min(truth.columns)];
        let hits = truth.iter().filter(|&&t| t >= 0.0 && found.iter().any(|f| f.1 == t as u64)).count();
        recalls.push(hits as f64 / truth.iter().filter(|t| **t >= 0.0).count().max(1) as f64);
        let c = runner.searcher.counters();
        total.waves += c.waves;
        total.leaves += c.leaves;
        total.codes += c.codes;
        total.refined += c.refined;
        total.reranked += c.reranked;
        leaves.push(c.leaves);
    }
    recalls.sort_unstable_by(f64::total_cmp);
    leaves.sort_unstable();
    // The fastest of several rounds, in time on the processor where that is known: the machine may be shared.
    let mut best = f64::INFINITY;
    let all = Instant::now();
    while all.elapsed().as_secs_f64() < seconds {
        let start = clock();
        for q in 0..queries.rows {
            std::hint::black_box(runner.run(index, queries.row(q), params));
        }
        best = best.min(clock() - start);
    }
    let n = queries.rows as f64;
    println!(
        "{:>16} {:>5} {:>7.4} {:>6.3} {:>6.1} {:>8.1} {:>7} {:>7.0} {:>8.1} {:>8.1} {:>8.0}",
        name,
        k,
        recalls.iter().sum::<f64>() / n,
        recalls[recalls.len() / 20],
        f64::from(total.waves) / n,
        f64::from(total.leaves) / n,
        leaves[leaves.len() * 99 / 100],
        total.codes as f64 / n,
        total.refined as f64 / n,
        total.reranked as f64 / n,
        n / best
    );
}

/// Seconds that this thread has run (Linux), else seconds since some moment.
fn clock() -> f64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let on_processor = std::fs::read_to_string("/proc/thread-self/schedstat")
        .ok()
        .and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
    on_processor.map_or_else(|| START.elapsed().as_secs_f64(), |nanoseconds| nanoseconds * 1e-9)
}

/// A searcher with what its caller needs.
#[derive(Default)]
struct Runner {
    searcher: Searcher,
    rows: Vec<u64>,
    distances: Vec<f32>,
    ranked: Vec<(f64, u64)>,
}

impl Runner {
    /// The first k rows by (distance, row), as the engine finds them.
    fn run(&mut self, index: &Index, query: &[f32], params: &SearchParams) -> &[(f64, u64)] {
        let searcher = &mut self.searcher;
        searcher.begin(&index.nav, query, params);
        while !searcher.next_wave(&index.nav).is_empty() {
            searcher.scan_wave(&index.nav, index, &NoMask);
            if searcher.should_rerank() {
                rerank(searcher, index, &mut self.rows, &mut self.distances);
            }
        }
        rerank(searcher, index, &mut self.rows, &mut self.distances);
        let frame = index.nav.frame();
        let exact = ExactQuery::new(frame.kernels(), frame.metric(), query);
        self.ranked.clear();
        self.ranked
            .extend(searcher.finish().iter().map(|h| (exact.distance(index.vectors.row(h.row)), h.row)));
        self.ranked.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        self.ranked.truncate(params.k);
        &self.ranked
    }
}

fn rerank(searcher: &mut Searcher, index: &Index, rows: &mut Vec<u64>, distances: &mut Vec<f32>) {
    loop {
        rows.clear();
        rows.extend_from_slice(searcher.next_rerank());
        if rows.is_empty() {
            return;
        }
        distances.clear();
        let query = searcher.prepared_query();
        for (i, &row) in rows.iter().enumerate() {
            if let Some(&ahead) = rows.get(i + 2) {
                prefetch(index.vectors.row(ahead));
            }
            distances.push(index.nav.frame().exact(query, index.vectors.row(row)));
        }
        searcher.feed_rerank(distances);
    }
}
