//! Meaning of the kernels against slow references, and the odd cases.

mod common;

use common::cases::{Data, vector};
use common::{Rng, kernel_sets};
use pando_kernels::{
    BitColumns, CodeSpace, ExactQuery, Kernels, Metric, NavQuery, Planes, Rotation, ScanQuery, ScanTerms,
    Simd, UnsupportedSimd, denormals_on, encode_bits, encode_nav, encode_refine, pack_codes, packed_len,
    padded_dim, unpack_code,
};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn f32_distances_are_near_f64(seed in any::<u64>(), d in 1usize..=1536) {
        let mut rng = Rng(seed);
        let (a, b) = (rng.gauss_vec(d), rng.gauss_vec(d));
        let dot: f64 = a.iter().zip(&b).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum();
        let l2: f64 = a.iter().zip(&b).map(|(x, y)| (f64::from(*x) - f64::from(*y)) * (f64::from(*x) - f64::from(*y))).sum();
        for k in kernel_sets() {
            let size = (k.norm2_f64(&a) * k.norm2_f64(&b)).sqrt();
            prop_assert!((f64::from(k.dot(&a, &b)) - dot).abs() <= 1e-6 * size);
            prop_assert!((f64::from(k.l2(&a, &b)) - l2).abs() <= 1e-6 * l2);
            prop_assert!((k.dot_f64(&a, &b) - dot).abs() <= 1e-13 * size);
            prop_assert!((k.l2_f64(&a, &b) - l2).abs() <= 1e-13 * l2);
        }
    }

    #[test]
    fn matrix_and_rows_have_the_bits_of_single_calls(seed in any::<u64>(), d in 1usize..=300, m in 0usize..15, n in 0usize..15) {
        let mut rng = Rng(seed);
        let (a, b) = (rng.gauss_vec(m * d), rng.gauss_vec(n * d));
        for k in kernel_sets() {
            let mut out = vec![0.0; m * n];
            k.dot_matrix(&a, &b, d, &mut out);
            for (i, x) in a.chunks_exact(d).enumerate() {
                let (mut l2, mut dot) = (vec![0.0; n], vec![0.0; n]);
                k.l2_rows(x, &b, &mut l2);
                k.dot_rows(x, &b, &mut dot);
                for (j, y) in b.chunks_exact(d).enumerate() {
                    prop_assert_eq!(out[i * n + j].to_bits(), k.dot(x, y).to_bits());
                    prop_assert_eq!(dot[j].to_bits(), k.dot(x, y).to_bits());
                    prop_assert_eq!(l2[j].to_bits(), k.l2(x, y).to_bits());
                    prop_assert_eq!(k.dot_norm2(x, y), (k.dot(x, y), k.norm2(y)));
                }
            }
        }
    }

    #[test]
    fn scan_sums_what_the_bits_say(seed in any::<u64>(), blocks in 2usize..=40, rows in 1usize..=70) {
        let padded = blocks * 64;
        let mut rng = Rng(seed);
        let codes: Vec<u8> = (0..rows * padded / 8).map(|_| rng.next() as u8).collect();
        let mut packed = vec![0xAA; packed_len(rows, padded)];
        pack_codes(&codes, padded, &mut packed);
        let q = rng.gauss_vec(padded);
        for planes in [Planes::P4, Planes::P6, Planes::P8] {
            let query = ScanQuery::new(&q, planes);
            // The quantiser, again: nearest step, ties to even.
            let u: Vec<u32> = q.iter().map(|v| {
                let m = q.iter().fold(0.0f32, |m, v| m.max(v.abs()));
                let half = planes.max() as f32 * 0.5;
                (v * (half / m) + half).round_ties_even().clamp(0.0, planes.max() as f32) as u32
            }).collect();
            for k in kernel_sets() {
                let mut sums = vec![0; rows];
                k.scan(&query, &packed, &mut sums);
                for (row, code) in codes.chunks_exact(padded / 8).enumerate() {
                    let bit = |i: usize| code[i / 8] >> (i % 8) & 1 == 1;
                    let want: u32 = (0..padded).map(|i| if bit(i) { u[i] } else { planes.max() - u[i] }).sum();
                    prop_assert_eq!(sums[row], want);
                    let mut back = vec![0; padded / 8];
                    unpack_code(&packed, padded, row, &mut back);
                    prop_assert_eq!(&back[..], code);
                }
            }
        }
    }

    #[test]
    fn survivors_are_those_under_the_threshold(seed in any::<u64>(), rows in 1usize..=150, cut in 0.0f64..1.0) {
        let (d, mut rng) = (128, Rng(seed));
        let k = Kernels::detect();
        let c = rng.gauss_vec(d);
        let mut codes = vec![0; rows * d / 8];
        let mut f: [Vec<f32>; 3] = Default::default();
        for code in codes.chunks_exact_mut(d / 8) {
            let b = encode_bits(&k, CodeSpace::L2, &rng.gauss_vec(d), &c, 0.0, code);
            for (f, v) in f.iter_mut().zip([b.f_add, b.f_rescale, b.norm]) {
                f.push(v);
            }
        }
        let mut packed = vec![0; packed_len(rows, d)];
        pack_codes(&codes, d, &mut packed);
        let query = ScanQuery::new(&rng.gauss_vec(d), Planes::P6);
        let terms = ScanTerms::new(CodeSpace::L2, &query, 2.5, 100.0, 10.0);
        let columns = BitColumns { f_add: &f[0], f_rescale: &f[1], norm: &f[2] };
        for k in kernel_sets() {
            let mut all = Vec::new();
            k.scan_estimates(&query, &packed, columns, &terms, f32::INFINITY, &mut all);
            prop_assert_eq!(all.iter().map(|s| s.index as usize).collect::<Vec<_>>(), (0..rows).collect::<Vec<_>>());
            let mut lower: Vec<f32> = all.iter().map(|s| s.lower).collect();
            lower.sort_by(f32::total_cmp);
            let threshold = lower[(cut * rows as f64) as usize];
            let mut some = Vec::new();
            k.scan_estimates(&query, &packed, columns, &terms, threshold, &mut some);
            // The scan decides without a root: rounding may move a row that is within it.
            let near = |s: f32| (s - threshold).abs() < 1e-3;
            let want: Vec<_> = all.iter().filter(|s| s.lower <= threshold && !near(s.lower)).collect();
            let got: Vec<_> = some.iter().filter(|s| !near(s.lower)).collect();
            prop_assert_eq!(got, want);
        }
    }

    #[test]
    fn refine_and_nav_are_the_products_of_their_levels(seed in any::<u64>(), blocks in 2usize..=20) {
        let d = blocks * 64;
        let mut rng = Rng(seed);
        let (r, c, q) = (rng.gauss_vec(d), rng.gauss_vec(d), rng.gauss_vec(d));
        let nibble = |n: &[u8], i: usize| {
            let byte = n[i / 64 * 32 + i % 32];
            f64::from(if i % 64 < 32 { byte & 15 } else { byte >> 4 })
        };
        for k in kernel_sets() {
            let (mut code, mut nibbles) = (vec![0; d / 8], vec![0; d / 2]);
            encode_bits(&k, CodeSpace::L2, &r, &c, 0.0, &mut code);
            encode_refine(&k, CodeSpace::L2, &r, &c, 0.0, &mut nibbles);
            let sign = |i: usize| if code[i / 8] >> (i % 8) & 1 == 1 { 1.0 } else { -1.0 };
            let mut packed = vec![0; packed_len(1, d)];
            pack_codes(&code, d, &mut packed);
            let query = ScanQuery::new(&q, Planes::P8);
            let mut sum = [0];
            k.scan(&query, &packed, &mut sum);
            let want: f64 = (0..d).map(|i| (8.0 * sign(i) + nibble(&nibbles, i) - 7.5) * f64::from(q[i])).sum();
            let got = f64::from(k.refine(&query, sum[0], &nibbles));
            // 255 steps: half a step is about max / 255; five standard deviations of the sum.
            let noise = f64::from(query.step()) / 3.46 * 9.0 * (d as f64).sqrt();
            prop_assert!((got - want).abs() < 5.0 * noise);
            let a = encode_nav(&k, &r, &mut nibbles);
            let want: f64 = (0..d).map(|i| (nibble(&nibbles, i) - 7.5) * f64::from(q[i])).sum::<f64>() * f64::from(a);
            let mut out = [0.0];
            k.nav(&NavQuery::new(&q), &nibbles, &[a], &[0.0], &mut out);
            prop_assert!((f64::from(out[0]) - want).abs() < 5.0 * noise * f64::from(a));
        }
    }

    #[test]
    fn rotation_keeps_norms_and_products(seed in any::<u64>(), d in 1usize..=1536) {
        let mut rng = Rng(seed);
        let (a, b) = (rng.gauss_vec(d), rng.gauss_vec(d));
        let k = Kernels::detect();
        let rotation = Rotation::new(seed, d);
        let (mut ra, mut rb) = (vec![0.0; rotation.padded()], vec![0.0; rotation.padded()]);
        rotation.apply(&k, &a, &mut ra);
        rotation.apply(&k, &b, &mut rb);
        let size = (k.norm2_f64(&a) * k.norm2_f64(&b)).sqrt();
        prop_assert!((k.norm2_f64(&ra) - k.norm2_f64(&a)).abs() <= 1e-5 * k.norm2_f64(&a));
        prop_assert!((k.dot_f64(&ra, &rb) - k.dot_f64(&a, &b)).abs() <= 1e-5 * size);
    }
}

#[test]
fn denormals_are_kept() {
    assert!(denormals_on());
    for k in kernel_sets() {
        assert!(k.dot(&[1e-25; 70], &[1e-20; 70]) > 0.0);
    }
}

#[test]
fn names_and_refusals() {
    for simd in Simd::ALL {
        assert_eq!(simd.name().parse(), Ok(simd));
    }
    assert_eq!("sse2".parse::<Simd>(), Err(UnsupportedSimd::Unknown("sse2".into())));
    assert!(Kernels::new(Simd::Neon).is_err());
    assert_eq!(Kernels::new(Simd::Scalar).map(|k| k.simd()), Ok(Simd::Scalar));
    for k in kernel_sets() {
        println!("{k:?}");
        assert!(Kernels::new(k.simd()).is_ok(), "passes its check again");
    }
    for metric in [Metric::L2, Metric::Cosine, Metric::Dot] {
        assert_eq!(metric.name().parse(), Ok(metric));
    }
}

#[test]
fn contract_distances() {
    for k in kernel_sets() {
        let (a, b) = ([3.0f32, 0.0, 4.0], [0.0f32, 2.0, 0.0]);
        assert_eq!(k.distance_f64(Metric::L2, &a, &b), 29.0);
        assert_eq!(k.distance_f64(Metric::Dot, &a, &a), -25.0);
        assert_eq!(k.distance_f64(Metric::Dot, &a, &b).to_bits(), 0.0f64.to_bits(), "no negative zero");
        assert_eq!(k.distance_f64(Metric::Cosine, &a, &b), 1.0);
        assert_eq!(k.distance_f64(Metric::Cosine, &a, &[0.0; 3]), 1.0);
        let mut rng = Rng(3);
        for d in 1..200 {
            let x = rng.gauss_vec(d);
            assert_eq!(ExactQuery::new(&k, Metric::Cosine, &x).distance(&x), 0.0, "equal vectors");
        }
        let mut unit = [0.0f32; 3];
        k.normalize(&a, &mut unit);
        assert_eq!(unit, [0.6, 0.0, 0.8]);
        k.normalize(&[0.0; 3], &mut unit);
        assert_eq!(unit, [0.0; 3]);
        assert_eq!((k.dot(&[], &[]), k.l2(&[], &[])), (0.0, 0.0));
    }
}

#[test]
fn padded_dimensions() {
    let cases = [(1, 128), (64, 128), (128, 128), (129, 192), (384, 384), (1000, 1024), (16_384, 16_384)];
    for (d, padded) in cases {
        assert_eq!(padded_dim(d), padded);
        assert_eq!(Rotation::new(0, d).padded(), padded);
    }
}

/// Encodes x against c and estimates the distance to q: 1 bit, 5 bits, with their bounds.
fn estimate(k: &Kernels, space: CodeSpace, x: &[f32], c: &[f32], q: &[f32]) -> [(f32, f32); 2] {
    let rotation = Rotation::new(9, x.len());
    let p = rotation.padded();
    let rotated = |a: &[f32]| {
        let mut out = vec![0.0; p];
        rotation.apply(k, a, &mut out);
        out
    };
    let diff: Vec<f32> = x.iter().zip(c).map(|(a, b)| a - b).collect();
    let (r, c_rot) = (rotated(&diff), rotated(c));
    let (mut code, mut nibbles) = (vec![0; p / 8], vec![0; p / 2]);
    let b = encode_bits(k, space, &r, &c_rot, 0.0, &mut code);
    let e = encode_refine(k, space, &r, &c_rot, 0.0, &mut nibbles);
    let mut packed = vec![0; packed_len(1, p)];
    pack_codes(&code, p, &mut packed);
    let query = ScanQuery::new(&rotated(q), Planes::P6);
    let g = k.l2(q, c);
    let g_add = if space == CodeSpace::L2 { g } else { -k.dot(q, c) };
    let terms = ScanTerms::new(space, &query, 2.5, g_add, g.sqrt());
    let columns = BitColumns { f_add: &[b.f_add], f_rescale: &[b.f_rescale], norm: &[b.norm] };
    let mut found = Vec::new();
    k.scan_estimates(&query, &packed, columns, &terms, f32::INFINITY, &mut found);
    let value = k.refine(&query, found[0].sum, &nibbles);
    [(found[0].est, found[0].lower), terms.refine(e, b.norm, value)]
}

#[test]
fn a_row_on_its_centroid_is_exact() {
    for k in kernel_sets() {
        for d in [1, 2, 3, 50, 384, 16_384] {
            let mut rng = Rng(d as u64);
            let (x, q) = (rng.gauss_vec(d), rng.gauss_vec(d));
            for (est, lower) in estimate(&k, CodeSpace::L2, &x, &x, &q) {
                assert_eq!(est, k.l2(&q, &x));
                assert!(lower <= est && lower >= est * (1.0 - 2e-6));
            }
            for (est, _) in estimate(&k, CodeSpace::Ip, &x, &x, &q) {
                assert_eq!(est, -k.dot(&q, &x));
            }
        }
    }
}

#[test]
fn odd_shapes_give_finite_estimates_within_reason() {
    for k in kernel_sets() {
        for d in [1, 2, 3, 100, 16_384] {
            for data in [Data::Gauss, Data::Equal, Data::Sparse, Data::Zero, Data::Tiny, Data::Huge] {
                let mut rng = Rng(d as u64 + 1);
                let [x, c, q] = [0; 3].map(|_| vector(&mut rng, d, data));
                for space in [CodeSpace::L2, CodeSpace::Ip] {
                    let truth = if space == CodeSpace::L2 { k.l2_f64(&q, &x) } else { -k.dot_f64(&q, &x) };
                    // Largest possible error: a wrong residual product.
                    let unit =
                        (k.l2_f64(&x, &c) * k.l2_f64(&q, &c)).sqrt() + 1e-6 * (truth.abs() + k.norm2_f64(&c));
                    for (i, (est, lower)) in estimate(&k, space, &x, &c, &q).into_iter().enumerate() {
                        assert!(est.is_finite() && lower <= est, "{space:?} d {d} {data:?}");
                        let part = [2.0, 0.5][i];
                        let error = (f64::from(est) - truth).abs();
                        assert!(error <= part * unit, "{space:?} d {d} {data:?}: {error} of {unit}");
                    }
                }
            }
        }
    }
}

#[test]
fn zero_queries_and_zero_centroids() {
    for k in kernel_sets() {
        let mut nibbles = vec![7; 64];
        assert_eq!(encode_nav(&k, &[0.0; 128], &mut nibbles), 0.0);
        let mut out = [5.0];
        k.nav(&NavQuery::new(&[0.0; 128]), &nibbles, &[1.0], &[3.0], &mut out);
        assert_eq!(out, [3.0]);
        let query = ScanQuery::new(&[0.0; 128], Planes::P6);
        assert_eq!(query.half_sign_product(0), 0.0);
        assert_eq!(query.step(), 0.0);
    }
}
