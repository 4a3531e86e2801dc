//! One input through every kernel: the outputs as bytes, by name. Used to compare kernel sets, to freeze the
//! bits, and by the emulator run.

use super::Rng;
use pando_kernels::{
    BitColumns, CodeSpace, Kernels, Metric, NavQuery, Planes, Rotation, ScanQuery, ScanTerms, encode_bits,
    encode_nav, encode_refine, pack_codes, packed_len,
};

/// Shape of the numbers of a case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Data {
    /// Gaussian.
    Gauss,
    /// Random sign and magnitude, 1e-15 to 1e15.
    Extreme,
    /// Gaussian times 1e-15.
    Tiny,
    /// Gaussian times 1e15.
    Huge,
    /// Mostly +0.0 and -0.0.
    Sparse,
    /// Only zeros.
    Zero,
    /// Every coordinate the same.
    Equal,
}

pub const DATA: [Data; 7] =
    [Data::Gauss, Data::Extreme, Data::Tiny, Data::Huge, Data::Sparse, Data::Zero, Data::Equal];

/// A vector of `d` values.
pub fn vector(rng: &mut Rng, d: usize, data: Data) -> Vec<f32> {
    let same = rng.gauss();
    (0..d)
        .map(|_| match data {
            Data::Gauss => rng.gauss(),
            Data::Extreme => {
                // 1 <= mantissa < 2, exponent of -49 to 49.
                let word = rng.next();
                let exponent = (word >> 32) % 99 + 78;
                f32::from_bits((word as u32 & 0x807F_FFFF) | (exponent as u32) << 23)
            }
            Data::Tiny => rng.gauss() * 1e-15,
            Data::Huge => rng.gauss() * 1e15,
            Data::Sparse => match rng.next() % 4 {
                0 => rng.gauss(),
                1 => -0.0,
                _ => 0.0,
            },
            Data::Zero => 0.0,
            Data::Equal => same,
        })
        .collect()
}

type Outputs = Vec<(String, Vec<u8>)>;

fn floats(x: &[f32]) -> Vec<u8> {
    x.iter().flat_map(|v| v.to_bits().to_le_bytes()).collect()
}

fn doubles(x: &[f64]) -> Vec<u8> {
    x.iter().flat_map(|v| v.to_bits().to_le_bytes()).collect()
}

/// Runs every kernel on `rows` seeded vectors of `d` values.
pub fn run(k: &Kernels, seed: u64, d: usize, rows: usize, data: Data) -> Outputs {
    let mut rng = Rng(seed);
    let q = vector(&mut rng, d, data);
    let other = vector(&mut rng, d, data);
    let matrix: Vec<f32> = (0..rows).flat_map(|_| vector(&mut rng, d, data)).collect();
    let mut out = Outputs::new();
    distances(k, &q, &other, &matrix, &mut out);
    let rotation = Rotation::new(seed, d);
    let p = rotation.padded();
    let rotate = |x: &[f32]| {
        let mut y = vec![0.0; p];
        rotation.apply(k, x, &mut y);
        y
    };
    let (q_rot, c_rot) = (rotate(&q), rotate(&other));
    out.push(("rotation".into(), floats(&q_rot)));
    let rotated: Vec<f32> = matrix.chunks_exact(d).flat_map(rotate).collect();
    for space in [CodeSpace::L2, CodeSpace::Ip] {
        codes(k, space, &q_rot, &c_rot, &rotated, &mut out);
    }
    navigation(k, &q_rot, &rotated, &mut out);
    out
}

fn distances(k: &Kernels, q: &[f32], other: &[f32], matrix: &[f32], out: &mut Outputs) {
    let d = q.len();
    let n = matrix.len() / d;
    let (dot, norm2) = k.dot_norm2(q, other);
    out.push(("single".into(), floats(&[k.l2(q, other), k.dot(q, other), k.norm2(q), dot, norm2])));
    let exact = [Metric::L2, Metric::Cosine, Metric::Dot].map(|m| k.distance_f64(m, q, other));
    out.push((
        "f64".into(),
        doubles(&[k.l2_f64(q, other), k.dot_f64(q, other), exact[0], exact[1], exact[2]]),
    ));
    let mut values = vec![0.0; n];
    k.l2_rows(q, matrix, &mut values);
    out.push(("l2_rows".into(), floats(&values)));
    k.dot_rows(q, matrix, &mut values);
    out.push(("dot_rows".into(), floats(&values)));
    let half = n / 2;
    let mut values = vec![0.0; half * n];
    k.dot_matrix(&matrix[..half * d], matrix, d, &mut values);
    out.push(("dot_matrix".into(), floats(&values)));
    let mut unit = vec![0.0; d];
    k.normalize(q, &mut unit);
    out.push(("normalize".into(), floats(&unit)));
}

fn codes(k: &Kernels, space: CodeSpace, q_rot: &[f32], c_rot: &[f32], rotated: &[f32], out: &mut Outputs) {
    let p = q_rot.len();
    let n = rotated.len() / p;
    let (mut codes, mut nibbles) = (vec![0u8; n * p / 8], vec![0u8; n * p / 2]);
    let mut f: [Vec<f32>; 6] = Default::default();
    let mut refine_factors = Vec::new();
    for (i, r) in rotated.chunks_exact(p).enumerate() {
        let b = encode_bits(k, space, r, c_rot, 0.25, &mut codes[i * p / 8..(i + 1) * p / 8]);
        let e = encode_refine(k, space, r, c_rot, 0.25, &mut nibbles[i * p / 2..(i + 1) * p / 2]);
        for (column, v) in f.iter_mut().zip([b.f_add, b.f_rescale, b.norm, e.f_add, e.f_rescale, e.f_error]) {
            column.push(v);
        }
        refine_factors.push(e);
    }
    out.push((format!("codes {space:?}"), codes.clone()));
    out.push((format!("nibbles {space:?}"), nibbles.clone()));
    for (i, column) in f.iter().enumerate() {
        out.push((format!("factors {space:?} {i}"), floats(column)));
    }
    let mut packed = vec![0u8; packed_len(n, p)];
    pack_codes(&codes, p, &mut packed);
    for planes in [Planes::P4, Planes::P6, Planes::P8] {
        let mut query = ScanQuery::default();
        query.prepare_with(k, q_rot, planes);
        assert!(query == ScanQuery::new(q_rot, planes), "queries differ");
        let mut sums = vec![0u32; n];
        k.scan(&query, &packed, &mut sums);
        out.push((format!("scan {planes:?}"), sums.iter().flat_map(|s| s.to_le_bytes()).collect()));
        let g = k.l2(q_rot, c_rot);
        let terms = ScanTerms::new(space, &query, 2.5, g, g.sqrt());
        let columns = BitColumns { f_add: &f[0], f_rescale: &f[1], norm: &f[2] };
        let mut all = Vec::new();
        k.scan_estimates(&query, &packed, columns, &terms, f32::INFINITY, &mut all);
        let mut sorted: Vec<f32> = all.iter().map(|s| s.lower).collect();
        sorted.sort_by(f32::total_cmp);
        let mut some = Vec::new();
        k.scan_estimates(&query, &packed, columns, &terms, sorted[n / 3], &mut some);
        for (name, list) in [("all", all), ("some", some)] {
            let bytes = list.iter().flat_map(|s| {
                [s.index, s.sum, s.est.to_bits(), s.lower.to_bits()].into_iter().flat_map(u32::to_le_bytes)
            });
            out.push((format!("estimates {space:?} {planes:?} {name}"), bytes.collect()));
        }
        let refined: Vec<f32> = (0..n)
            .flat_map(|i| {
                let value = k.refine(&query, sums[i], &nibbles[i * p / 2..(i + 1) * p / 2]);
                let (est, lower) = terms.refine(refine_factors[i], f[2][i], value);
                [value, est, lower]
            })
            .collect();
        out.push((format!("refine {space:?} {planes:?}"), floats(&refined)));
    }
}

fn navigation(k: &Kernels, q_rot: &[f32], rotated: &[f32], out: &mut Outputs) {
    let p = q_rot.len();
    let n = rotated.len() / p;
    let mut nibbles = vec![0u8; n * p / 2];
    let scales: Vec<f32> = rotated
        .chunks_exact(p)
        .zip(nibbles.chunks_exact_mut(p / 2))
        .map(|(c, code)| encode_nav(k, c, code))
        .collect();
    let add: Vec<f32> = rotated.chunks_exact(p).map(|c| k.norm2(c)).collect();
    let mut values = vec![0.0; n];
    let mut query = NavQuery::default();
    query.prepare_with(k, q_rot);
    k.nav(&query, &nibbles, &scales, &add, &mut values);
    out.push(("nav codes".into(), nibbles));
    out.push(("nav scales".into(), floats(&scales)));
    out.push(("nav".into(), floats(&values)));
}
