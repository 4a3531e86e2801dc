//! Builds a tree over the rows of an .npy file (float16 or float32, two dimensions) and prints what came out.
//!
//! With `steps`, the first half of the rows is built and the rest is added in so many checkpoints.
//!
//! `cargo run --release -p pando-tree --example build_stats -- FILE [cosine|l2|dot] [threads] [rows] [MiB] [steps]`
#![allow(clippy::disallowed_methods)] // A program that measures: the lints are for the library.

use std::error::Error;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use pando_kernels::{Kernels, Metric};
use pando_tree::{Change, Env, NoRows, TreeConfig, TreeError, VectorSource, advance, build, check};

struct Matrix {
    dim: usize,
    data: Vec<f32>,
}

impl VectorSource for Matrix {
    fn read(&self, rows: &[u64], out: &mut [f32]) -> Result<(), TreeError> {
        for (row, x) in rows.iter().zip(out.chunks_exact_mut(self.dim)) {
            x.copy_from_slice(&self.data[*row as usize * self.dim..][..self.dim]);
        }
        Ok(())
    }
}

/// IEEE half precision to single.
fn half(bits: u16) -> f32 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f32::from(bits & 0x3ff));
    sign * match exponent {
        0 => fraction * 2f32.powi(-24),
        31 => f32::INFINITY,
        e => (1.0 + fraction / 1024.0) * f32::from_bits(((e + 112) as u32) << 23),
    }
}

fn load(path: &str) -> Result<Matrix, Box<dyn Error>> {
    let bytes = std::fs::read(path)?;
    let header_len = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let header = std::str::from_utf8(&bytes[10..10 + header_len])?;
    let shape = header.split("'shape': (").nth(1).and_then(|s| s.split(')').next()).ok_or("no shape")?;
    let dim: usize = shape.split(',').nth(1).ok_or("not two-dimensional")?.trim().parse()?;
    let body = &bytes[10 + header_len..];
    let data = if header.contains("<f2") {
        body.chunks_exact(2).map(|b| half(u16::from_le_bytes([b[0], b[1]]))).collect()
    } else if header.contains("<f4") {
        body.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    } else {
        return Err("neither float16 nor float32".into());
    };
    Ok(Matrix { dim, data })
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().collect();
    let arg = |i: usize| args.get(i).map(String::as_str);
    let path = arg(1).ok_or("usage: build_stats FILE [metric] [threads] [rows] [MiB] [steps]")?;
    let metric: Metric = arg(2).unwrap_or("cosine").parse()?;
    let threads: usize = arg(3).unwrap_or("1").parse()?;
    let matrix = load(path)?;
    let all = matrix.data.len() / matrix.dim;
    let n: usize = arg(4).map_or(Ok(all), str::parse)?;
    let memory: usize = arg(5).map_or(Ok(1024), str::parse)?;
    let cfg = TreeConfig { dim: matrix.dim, metric, seed: 0, copies: 2, refine: true, small_limit: 10_000 };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
    let start = Instant::now();
    let progress = |p: pando_tree::Progress| {
        eprintln!("{:8.2}s {:?} {}/{}", start.elapsed().as_secs_f64(), p.stage, p.done, p.total);
    };
    let cancel = AtomicBool::new(false);
    let kernels = Kernels::from_env()?;
    let env = Env {
        kernels,
        pool: &pool,
        vectors: &matrix,
        memory: memory << 20,
        progress: &progress,
        cancel: &cancel,
    };
    let rows: Vec<u64> = (0..n.min(all) as u64).collect();
    let steps: usize = arg(6).map_or(Ok(0), str::parse)?;
    let (first, rest) = rows.split_at(if steps == 0 { rows.len() } else { rows.len() / 2 });
    let mut tree = build(&cfg, first, &env)?;
    for part in rest.chunks(rest.len().div_ceil(steps.max(1)).max(1)) {
        let before = start.elapsed();
        let (next, report) = advance(&cfg, tree, part, &NoRows, &env)?;
        tree = next;
        let rewritten = tree.leaves.values().filter(|l| l.change == Change::Rewritten).count();
        println!(
            "+{} rows in {:.2} s: {} rounds, {} splits, {} merges, {} moved, {rewritten} of {} leaves rewritten",
            part.len(),
            (start.elapsed() - before).as_secs_f64(),
            report.rounds,
            report.splits,
            report.merges,
            report.moved,
            tree.leaves.len()
        );
    }
    println!(
        "{} rows x {}, {} kernels, {threads} threads: {:.2} s",
        rows.len(),
        cfg.dim,
        kernels.simd(),
        start.elapsed().as_secs_f64()
    );
    let totals = check(&cfg, &tree, &NoRows)?;
    println!("live {} secondaries {} bands {:?}", totals.live, totals.secondaries, tree.params.bands);
    let mut sizes: Vec<usize> = tree.leaves.values().map(|l| l.primaries.len()).collect();
    sizes.sort_unstable();
    let at = |q: usize| sizes[(sizes.len() - 1) * q / 100];
    println!(
        "S {} leaves {}: min {} p5 {} p25 {} p50 {} p75 {} p95 {} max {} mean {:.1}",
        tree.params.split_size,
        sizes.len(),
        at(0),
        at(5),
        at(25),
        at(50),
        at(75),
        at(95),
        at(100),
        rows.len() as f64 / sizes.len() as f64
    );
    let mut groups: Vec<usize> = tree.groups.values().map(|g| g.leaves.len()).collect();
    groups.sort_unstable();
    println!(
        "groups {} of {}..{} (median {}), inner nodes {}, levels {}",
        groups.len(),
        groups[0],
        groups[groups.len() - 1],
        groups[groups.len() / 2],
        tree.inners.len(),
        tree.top.child_level
    );
    // Every 37th row against all leaves of its band.
    let (mut off, mut seen) = (0, 0);
    let d = cfg.dim;
    let unit = |x: &[f32]| {
        let mut out = vec![0f32; d];
        if metric == Metric::L2 {
            out.copy_from_slice(x)
        } else {
            kernels.normalize(x, &mut out)
        }
        out
    };
    let centers: Vec<(u8, Vec<f32>)> = tree
        .leaves
        .values()
        .map(|l| (l.band, if metric == Metric::Dot { unit(&l.centroid) } else { l.centroid.clone() }))
        .collect();
    for (i, leaf) in tree.leaves.values().enumerate() {
        for &row in leaf.primaries.iter().filter(|&&row| row % 37 == 0) {
            let x = unit(&matrix.data[row as usize * d..][..d]);
            let own = kernels.l2(&x, &centers[i].1);
            seen += 1;
            off += usize::from(centers.iter().any(|(b, c)| *b == leaf.band && kernels.l2(&x, c) < own));
        }
    }
    println!("not in the nearest leaf: {:.1} %", 100.0 * off as f64 / seen.max(1) as f64);
    Ok(())
}
