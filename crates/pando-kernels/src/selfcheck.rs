//! A short comparison with the scalar kernels, run when a kernel set is chosen.
//!
//! Roots must be the same bytes on every machine. A kernel set that computes anything else on this CPU (a fault of
//! the processor, of an emulator or hypervisor, or of code that this machine is the first to run) is refused
//! instead of used. It takes about a millisecond.

use std::sync::OnceLock;

use crate::codes::{encode_bits, encode_nav, encode_refine};
use crate::kernels::Kernels;
use crate::metric::CodeSpace;
use crate::packed::packed_len;
use crate::query::{BitColumns, NavQuery, Planes, ScanQuery, ScanTerms};
use crate::rotation::Rotation;
use crate::simd::Simd;

/// True if `k` gives the bits of the scalar kernels. Done once a process and set: the answer is a fact about the
/// machine, and callers may choose a set often (1 ms each would slow tests down).
pub(crate) fn passes(k: &Kernels) -> bool {
    static AVX2: OnceLock<bool> = OnceLock::new();
    static AVX512: OnceLock<bool> = OnceLock::new();
    let scalar = Kernels::with_table(Simd::Scalar, &crate::scalar::TABLE);
    match k.simd() {
        Simd::Scalar => true,
        Simd::Avx2 => *AVX2.get_or_init(|| agrees(k, &scalar)),
        Simd::Avx512 => *AVX512.get_or_init(|| agrees(k, &scalar)),
        Simd::Neon => agrees(k, &scalar),
    }
}

/// Rows of the scan: two whole blocks and a part of one.
const ROWS: usize = 71;

/// True if both give the same bits.
fn agrees(k: &Kernels, scalar: &Kernels) -> bool {
    // With and without a tail of 64 lanes, with and without the Kac step; over 1024 the sums are spilled.
    [(100, 3), (192, 7), (256, 4), (1100, 2)]
        .into_iter()
        .all(|(d, rows)| outputs(k, d, rows) == outputs(scalar, d, rows))
}

/// A fixed sequence of numbers in [-1, 1).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }

    fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| (self.next() >> 8) as f32 / 8_388_608.0 - 1.0).collect()
    }

    fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| (self.next() >> 24) as u8).collect()
    }
}

/// The bits of what every kernel makes of seeded vectors of length `d`.
fn outputs(k: &Kernels, d: usize, rows: usize) -> Vec<u64> {
    let mut numbers = Numbers(d as u64);
    let mut out = Vec::new();
    let (a, b) = (numbers.floats(rows * d), numbers.floats(13 * d));
    let (x, y) = (&a[..d], &b[..d]);
    let (dot, norm2) = k.dot_norm2(x, y);
    floats(&mut out, &[k.l2(x, y), k.dot(x, y), dot, norm2]);
    let (dot, norm2) = k.dot_norm2_f64(x, y);
    out.extend([k.l2_f64(x, y), k.dot_f64(x, y), dot, norm2].map(f64::to_bits));
    let mut values = vec![0.0; 13];
    k.l2_rows(x, &b, &mut values);
    floats(&mut out, &values);
    k.dot_rows(x, &b, &mut values);
    floats(&mut out, &values);
    let mut values = vec![0.0; rows * 13];
    k.dot_matrix(&a, &b, d, &mut values);
    floats(&mut out, &values);

    let rotation = Rotation::new(1, d);
    let p = rotation.padded();
    let (mut r, mut c) = (vec![0.0; p], vec![0.0; p]);
    rotation.apply(k, x, &mut r);
    rotation.apply(k, y, &mut c);
    floats(&mut out, &r);
    let (mut code, mut nibbles) = (vec![0; p / 8], vec![0; p / 2]);
    let f = encode_bits(k, CodeSpace::L2, &r, &c, 0.0, &mut code);
    floats(&mut out, &[f.f_add, f.f_rescale, f.norm]);
    out.extend(code.iter().map(|v| u64::from(*v)));
    let f = encode_refine(k, CodeSpace::Ip, &r, &c, 0.5, &mut nibbles);
    floats(&mut out, &[f.f_add, f.f_rescale, f.f_error]);
    out.extend(nibbles.iter().map(|v| u64::from(*v)));
    floats(&mut out, &[encode_nav(k, &c, &mut nibbles)]);
    out.extend(nibbles.iter().map(|v| u64::from(*v)));
    scores(k, &r, &mut numbers, &mut out);
    out
}

/// Scans, refinement and navigation over random codes.
fn scores(k: &Kernels, q_rot: &[f32], numbers: &mut Numbers, out: &mut Vec<u64>) {
    let p = q_rot.len();
    let packed = numbers.bytes(packed_len(ROWS, p));
    let nibbles = numbers.bytes(ROWS * p / 2);
    let (f_add, f_rescale, norm) = (numbers.floats(ROWS), numbers.floats(ROWS), numbers.floats(ROWS));
    let columns = BitColumns { f_add: &f_add, f_rescale: &f_rescale, norm: &norm };
    let (mut query, mut sums, mut survivors) = (ScanQuery::default(), vec![0; ROWS], Vec::new());
    for planes in [Planes::P4, Planes::P6, Planes::P8] {
        query.prepare_with(k, q_rot, planes);
        k.scan(&query, &packed, &mut sums);
        out.extend(sums.iter().map(|v| u64::from(*v)));
        let terms = ScanTerms::new(CodeSpace::L2, &query, 0.5, 1.0, 1.0);
        k.scan_estimates(&query, &packed, columns, &terms, 1.0, &mut survivors);
        floats(out, &[k.refine(&query, sums[0], &nibbles[..p / 2])]);
    }
    for s in &survivors {
        out.extend([u64::from(s.index), u64::from(s.sum)]);
        floats(out, &[s.est, s.lower]);
    }
    let mut query = NavQuery::default();
    query.prepare_with(k, q_rot);
    let mut values = vec![0.0; ROWS];
    k.nav(&query, &nibbles, &f_rescale, &f_add, &mut values);
    floats(out, &values);
}

fn floats(out: &mut Vec<u64>, values: &[f32]) {
    out.extend(values.iter().map(|v| u64::from(v.to_bits())));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scalar;
    use crate::table::Table;

    #[test]
    fn a_wrong_kernel_is_noticed() {
        fn off_by_one(nibbles: &[u8], w: &[i8]) -> i32 {
            scalar::nibble_dot(nibbles, w) + 1
        }
        fn no_survivors(_: &crate::table::EstimateArgs<'_>, _: &mut Vec<crate::query::Survivor>) {}
        let right = Kernels::with_table(Simd::Scalar, &scalar::TABLE);
        assert!(agrees(&right, &right));
        static WRONG: Table = Table { nibble_dot: off_by_one, ..scalar::TABLE };
        assert!(!agrees(&Kernels::with_table(Simd::Scalar, &WRONG), &right));
        static BLIND: Table = Table { estimates: no_survivors, ..scalar::TABLE };
        assert!(!agrees(&Kernels::with_table(Simd::Scalar, &BLIND), &right));
    }

    #[test]
    fn every_kernel_leaves_a_trace() {
        let right = Kernels::with_table(Simd::Scalar, &scalar::TABLE);
        let out = outputs(&right, 192, 7);
        assert!(out.len() > 1000 && out.iter().filter(|v| **v == 0).count() < out.len() / 4);
        assert!(Kernels::new(Simd::Scalar).is_ok());
    }
}
