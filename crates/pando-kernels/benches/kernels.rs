//! Time per code, row or vector of the hot kernels. `PANDO_SIMD` chooses the set.
//!
//! `cargo bench -p pando-kernels --bench kernels`. The throughput column counts codes or rows: its inverse is the
//! time for one.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use pando_kernels::{
    BitColumns, CodeSpace, Kernels, NavQuery, Planes, Rotation, ScanQuery, ScanTerms, encode_bits,
    encode_nav, encode_refine, packed_len,
};

fn main() {
    divan::main();
}

const DIMS: [usize; 4] = [64, 384, 768, 1024];
/// Codes of a run: 1024 codes of 384 dimensions are 48 KiB, in L2.
const ROWS: usize = 1024;

fn kernels() -> Kernels {
    Kernels::from_env().expect("PANDO_SIMD names a set of this machine")
}

fn noise(n: usize, seed: u64) -> Vec<f32> {
    let mut s = seed;
    (0..n)
        .map(|_| {
            s = s.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (s >> 40) as f32 / 8_388_608.0 - 1.0
        })
        .collect()
}

fn bytes(n: usize, seed: u64) -> Vec<u8> {
    noise(n, seed).iter().map(|v| (v.to_bits() >> 8) as u8).collect()
}

fn scan_planes(bencher: Bencher, d: usize, planes: Planes) {
    let k = kernels();
    let packed = bytes(packed_len(ROWS, d), 1);
    let query = ScanQuery::new(&noise(d, 2), planes);
    let (f_add, f_rescale, norm) = (noise(ROWS, 3), noise(ROWS, 4), noise(ROWS, 5));
    let columns = BitColumns { f_add: &f_add, f_rescale: &f_rescale, norm: &norm };
    let terms = ScanTerms::new(CodeSpace::L2, &query, 2.5, 1.0, 1.0);
    // About 2 % survive.
    let mut survivors = Vec::new();
    k.scan_estimates(&query, &packed, columns, &terms, f32::INFINITY, &mut survivors);
    let mut lower: Vec<f32> = survivors.iter().map(|s| s.lower).collect();
    lower.sort_by(f32::total_cmp);
    let threshold = lower[ROWS / 50];
    bencher.counter(ItemsCount::new(ROWS)).bench_local(|| {
        survivors.clear();
        k.scan_estimates(&query, black_box(&packed), columns, &terms, threshold, &mut survivors);
        survivors.len()
    });
}

/// The choice of a set with its self-check.
#[divan::bench]
fn detect() -> Kernels {
    Kernels::detect()
}

#[divan::bench(args = DIMS)]
fn scan_4_planes(bencher: Bencher, d: usize) {
    scan_planes(bencher, d, Planes::P4);
}

#[divan::bench(args = DIMS)]
fn scan_6_planes(bencher: Bencher, d: usize) {
    scan_planes(bencher, d, Planes::P6);
}

#[divan::bench(args = DIMS)]
fn scan_8_planes(bencher: Bencher, d: usize) {
    scan_planes(bencher, d, Planes::P8);
}

#[divan::bench(args = DIMS)]
fn nav(bencher: Bencher, d: usize) {
    let k = kernels();
    let codes = bytes(ROWS * d / 2, 1);
    let query = NavQuery::new(&noise(d, 2));
    let (w, add) = (noise(ROWS, 3), noise(ROWS, 4));
    let mut out = vec![0.0; ROWS];
    bencher
        .counter(ItemsCount::new(ROWS))
        .bench_local(|| k.nav(&query, black_box(&codes), &w, &add, &mut out));
}

#[divan::bench(args = DIMS)]
fn refine(bencher: Bencher, d: usize) {
    let k = kernels();
    let nibbles = bytes(ROWS * d / 2, 1);
    let query = ScanQuery::new(&noise(d, 2), Planes::P6);
    bencher.counter(ItemsCount::new(ROWS)).bench_local(|| {
        nibbles.chunks_exact(d / 2).map(|c| k.refine(&query, 1000, black_box(c))).sum::<f32>()
    });
}

#[divan::bench(args = DIMS)]
fn l2_rows(bencher: Bencher, d: usize) {
    let k = kernels();
    let (q, rows) = (noise(d, 1), noise(256 * d, 2));
    let mut out = vec![0.0; 256];
    bencher.counter(ItemsCount::new(256usize)).bench_local(|| k.l2_rows(&q, black_box(&rows), &mut out));
}

/// Pairs of a 96 x 512 matrix.
#[divan::bench(args = DIMS)]
fn dot_matrix(bencher: Bencher, d: usize) {
    let k = kernels();
    let (a, b) = (noise(96 * d, 1), noise(512 * d, 2));
    let mut out = vec![0.0; 96 * 512];
    bencher
        .counter(ItemsCount::new(96usize * 512))
        .bench_local(|| k.dot_matrix(black_box(&a), black_box(&b), d, &mut out));
}

#[divan::bench(args = DIMS)]
fn l2_f64(bencher: Bencher, d: usize) {
    let k = kernels();
    let (q, rows) = (noise(d, 1), noise(256 * d, 2));
    bencher
        .counter(ItemsCount::new(256usize))
        .bench_local(|| rows.chunks_exact(d).map(|x| k.l2_f64(black_box(&q), x)).sum::<f64>());
}

#[divan::bench(args = DIMS)]
fn rotation(bencher: Bencher, d: usize) {
    let k = kernels();
    let rotation = Rotation::new(1, d);
    let x = noise(d, 1);
    let mut out = vec![0.0; rotation.padded()];
    bencher.counter(ItemsCount::new(1usize)).bench_local(|| rotation.apply(&k, black_box(&x), &mut out));
}

#[divan::bench(args = DIMS)]
fn prepare_scan_query(bencher: Bencher, d: usize) {
    let (k, q) = (kernels(), noise(d, 1));
    let mut query = ScanQuery::default();
    bencher
        .counter(ItemsCount::new(1usize))
        .bench_local(|| query.prepare_with(&k, black_box(&q), Planes::P6));
}

#[divan::bench(args = DIMS)]
fn encode_1_bit(bencher: Bencher, d: usize) {
    let k = kernels();
    let (r, c, mut code) = (noise(d, 1), noise(d, 2), vec![0; d / 8]);
    bencher
        .counter(ItemsCount::new(1usize))
        .bench_local(|| encode_bits(&k, CodeSpace::L2, black_box(&r), &c, 0.0, &mut code));
}

#[divan::bench(args = DIMS)]
fn encode_5_bits(bencher: Bencher, d: usize) {
    let k = kernels();
    let (r, c, mut code) = (noise(d, 1), noise(d, 2), vec![0; d / 2]);
    bencher
        .counter(ItemsCount::new(1usize))
        .bench_local(|| encode_refine(&k, CodeSpace::L2, black_box(&r), &c, 0.0, &mut code));
}

#[divan::bench(args = DIMS)]
fn encode_4_bits(bencher: Bencher, d: usize) {
    let k = kernels();
    let (r, mut code) = (noise(d, 1), vec![0; d / 2]);
    bencher.counter(ItemsCount::new(1usize)).bench_local(|| encode_nav(&k, black_box(&r), &mut code));
}
