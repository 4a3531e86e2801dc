//! The hot kernels beside what the machine can do: ns for one code, row or child, GB/s of what is read, and the share of
//! the bandwidth that was measured for data of that size. One thread; `PANDO_SIMD` chooses the set.
//!
//! `cargo bench -p pando-kernels --bench limits [-- 384 1024]` (dimensions; 384, 768 and 1024 unless said).
//!
//! Each figure is the best of several runs and, in brackets, their median: on a machine with other work the best is what
//! the kernel takes, and the distance to the median says how far to trust it.
#![allow(clippy::disallowed_methods)] // A program that measures: the lints are for the library.

use std::hint::black_box;
use std::time::{Duration, Instant};

use pando_kernels::{BitColumns, CodeSpace, Kernels, NavQuery, Planes, ScanQuery, ScanTerms, packed_len};

/// Codes of a scan that stay in L2, and of one that does not.
const NEAR: usize = 1024;
const FAR: usize = 65_536;
/// Centroids that a search of ten million rows navigates.
const CHILDREN: usize = 17_000;
/// Share of codes that pass the threshold of a scan: one in so many.
const SURVIVORS: usize = 50;
/// Runs of one figure, and the least time of a run.
const RUNS: usize = 9;
const RUN: Duration = Duration::from_millis(15);

fn main() {
    let mut dims: Vec<usize> = std::env::args().filter_map(|a| a.parse().ok()).collect();
    if dims.is_empty() {
        dims = vec![384, 768, 1024];
    }
    let k = Kernels::from_env().expect("PANDO_SIMD names a set of this machine");
    println!("{} kernels; ns: best (median) of {RUNS} runs\n", k.simd());
    let bandwidth = Bandwidth::measure(&k);
    println!("| kernel | d | items | bytes read | ns an item | us in all | GB/s | of the bandwidth |");
    println!("|---|---|---|---|---|---|---|---|");
    for d in dims {
        for n in [NEAR, FAR] {
            for (name, planes) in [
                ("scan, 4 planes", Planes::P4),
                ("scan, 6 planes", Planes::P6),
                ("scan, 8 planes", Planes::P8),
            ] {
                bandwidth.row(name, d, n, packed_len(n, d) + 12 * n, scan(&k, d, n, planes));
            }
        }
        bandwidth.row("navigation", d, CHILDREN, CHILDREN * (d / 2 + 8), navigation(&k, d, CHILDREN));
        bandwidth.row("refine", d, NEAR, NEAR * d / 2, refine(&k, d, NEAR));
        for n in [128, FAR] {
            bandwidth.row("l2", d, n, n * d * 4, rows(d, n, |a, b| k.l2(a, b)));
            bandwidth.row("dot", d, n, n * d * 4, rows(d, n, |a, b| k.dot(a, b)));
        }
        bandwidth.row("l2 in f64", d, 128, 128 * d * 4, rows(d, 128, |a, b| k.l2_f64(a, b) as f32));
    }
}

/// Best and median seconds of one call.
type Seconds = (f64, f64);

fn time(mut call: impl FnMut()) -> Seconds {
    let start = Instant::now();
    call();
    let calls = (RUN.as_secs_f64() / start.elapsed().as_secs_f64().max(1e-9)).ceil().clamp(1.0, 1e7) as u32;
    let mut runs: Vec<f64> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            (0..calls).for_each(|_| call());
            start.elapsed().as_secs_f64() / f64::from(calls)
        })
        .collect();
    runs.sort_by(f64::total_cmp);
    (runs[0], runs[RUNS / 2])
}

/// Bytes a second that one thread reads from data of a size: `dot` over two halves, which does nothing but load, multiply
/// and add.
struct Bandwidth(Vec<(usize, f64)>);

impl Bandwidth {
    fn measure(k: &Kernels) -> Self {
        let sizes = [32 << 10, 256 << 10, 4 << 20, 16 << 20, 512 << 20];
        let mut all = Vec::new();
        for bytes in sizes {
            let x = vec![1f32; bytes / 4];
            let (best, median) = time(|| {
                // Rows of 16 KiB: long enough to hide the end of a row.
                for pair in black_box(&x).chunks_exact(8192.min(x.len())) {
                    let (a, b) = pair.split_at(pair.len() / 2);
                    black_box(k.dot(a, b));
                }
            });
            println!(
                "{:>9.2} MiB are read at {:.1} GB/s ({:.1})",
                bytes as f64 / 1048576.0,
                bytes as f64 / best / 1e9,
                bytes as f64 / median / 1e9
            );
            all.push((bytes, bytes as f64 / best));
        }
        println!();
        Self(all)
    }

    /// That of the smallest measured size that is not less.
    fn of(&self, bytes: usize) -> f64 {
        let fits = self.0.iter().find(|(size, _)| *size >= bytes).or(self.0.last());
        fits.map_or(f64::NAN, |(_, speed)| *speed)
    }

    fn row(&self, name: &str, d: usize, n: usize, bytes: usize, (best, median): Seconds) {
        let ns = |t: f64| t * 1e9 / n as f64;
        let speed = bytes as f64 / best;
        println!(
            "| {name} | {d} | {n} | {bytes} | {:.2} ({:.2}) | {:.1} | {:.1} | {:.0} % |",
            ns(best),
            ns(median),
            best * 1e6,
            speed / 1e9,
            100.0 * speed / self.of(bytes)
        );
    }
}

fn noise(n: usize, seed: u64) -> Vec<f32> {
    let mut s = seed;
    let mut next = || {
        s = s.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (s >> 40) as f32 / 8_388_608.0 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

fn bytes(n: usize, seed: u64) -> Vec<u8> {
    noise(n, seed).iter().map(|v| (v.to_bits() >> 8) as u8).collect()
}

fn scan(k: &Kernels, d: usize, n: usize, planes: Planes) -> Seconds {
    // Blocks of a root begin at multiples of 64.
    let unaligned = bytes(packed_len(n, d) + 64, 1);
    let packed = &unaligned[unaligned.as_ptr().align_offset(64)..][..packed_len(n, d)];
    let query = ScanQuery::new(&noise(d, 2), planes);
    let (f_add, f_rescale, norm) = (noise(n, 3), noise(n, 4), noise(n, 5));
    let columns = BitColumns { f_add: &f_add, f_rescale: &f_rescale, norm: &norm };
    let terms = ScanTerms::new(CodeSpace::L2, &query, 2.5, 1.0, 1.0);
    let mut survivors = Vec::new();
    k.scan_estimates(&query, packed, columns, &terms, f32::INFINITY, &mut survivors);
    let mut lower: Vec<f32> = survivors.iter().map(|s| s.lower).collect();
    lower.sort_by(f32::total_cmp);
    let threshold = lower[n / SURVIVORS];
    time(|| {
        survivors.clear();
        k.scan_estimates(&query, black_box(packed), columns, &terms, threshold, &mut survivors);
        black_box(&survivors);
    })
}

fn navigation(k: &Kernels, d: usize, n: usize) -> Seconds {
    let codes = bytes(n * d / 2, 1);
    let query = NavQuery::new(&noise(d, 2));
    let (w, add) = (noise(n, 3), noise(n, 4));
    let mut out = vec![0.0; n];
    time(|| {
        k.nav(&query, black_box(&codes), &w, &add, &mut out);
        black_box(&out);
    })
}

fn refine(k: &Kernels, d: usize, n: usize) -> Seconds {
    let nibbles = bytes(n * d / 2, 1);
    let query = ScanQuery::new(&noise(d, 2), Planes::P6);
    time(|| {
        let sum: f32 = black_box(&nibbles).chunks_exact(d / 2).map(|code| k.refine(&query, 1000, code)).sum();
        black_box(sum);
    })
}

fn rows(d: usize, n: usize, distance: impl Fn(&[f32], &[f32]) -> f32) -> Seconds {
    let (query, rows) = (noise(d, 1), noise(n * d, 2));
    time(|| {
        let sum: f32 = black_box(&rows).chunks_exact(d).map(|row| distance(&query, row)).sum();
        black_box(sum);
    })
}
