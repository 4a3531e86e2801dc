//! Statistics of the codes: no bias, the bound holds as often as it says, errors near the theory.

mod common;

use common::Rng;
use pando_kernels::{
    BitColumns, CodeSpace, Kernels, NavQuery, Planes, Rotation, ScanQuery, ScanTerms, encode_bits,
    encode_nav, encode_refine, pack_codes, packed_len,
};

/// What a run over many (row, query) pairs found, in units of the true residual product's standard error.
#[derive(Default, Debug)]
struct Errors {
    n: f64,
    /// Sum of (est - true) / (kappa |r| |q - c| / sqrt(D - 1)) and of its square.
    sum: f64,
    squares: f64,
    /// Rows whose true distance lies under the lower bound.
    under: f64,
}

impl Errors {
    fn add(&mut self, est: f32, lower: f32, truth: f64, unit: f64) {
        let e = (f64::from(est) - truth) / unit;
        self.n += 1.0;
        self.sum += e;
        self.squares += e * e;
        self.under += f64::from(u8::from(truth < f64::from(lower)));
    }
    fn mean(&self) -> f64 {
        self.sum / self.n
    }
    fn sigma(&self) -> f64 {
        (self.squares / self.n).sqrt()
    }
    fn outside(&self) -> f64 {
        self.under / self.n
    }
}

/// Scale of data coordinates, chosen by the shape of a set.
fn data(rng: &mut Rng, d: usize, shape: &str) -> Vec<f32> {
    let mut x = rng.gauss_vec(d);
    if shape == "skewed" {
        for v in x.iter_mut().take(d / 32 + 1) {
            *v *= 8.0;
        }
    }
    x
}

fn run(
    space: CodeSpace,
    d: usize,
    shift: f32,
    shape: &str,
    centred: bool,
    planes: Planes,
    eps0: f32,
) -> (Errors, Errors) {
    let k = Kernels::detect();
    let mut rng = Rng(d as u64 + 17);
    let (mut one, mut five) = (Errors::default(), Errors::default());
    let (rows, queries) = (200, 20);
    for round in 0..6 {
        let rotation = Rotation::new(round, d);
        let padded = rotation.padded();
        let mu: Vec<f32> = rng.gauss_vec(d).iter().map(|v| v * shift + shift).collect();
        let mean = mu.clone();
        // A mean that is not taken off: the codes must stay unbiased, only the query's step grows.
        let mu = if centred { mu } else { vec![0.0; d] };
        let c: Vec<f32> = rng.gauss_vec(d).iter().zip(&mean).map(|(v, m)| v * 0.7 + m).collect();
        let rotated = |x: &[f32], y: &[f32]| {
            let diff: Vec<f32> = x.iter().zip(y).map(|(a, b)| a - b).collect();
            let mut out = vec![0.0; padded];
            rotation.apply(&k, &diff, &mut out);
            out
        };
        let c_rot = rotated(&c, &mu);
        let (mut codes, mut nibbles) = (vec![0u8; rows * padded / 8], vec![0u8; rows * padded / 2]);
        let (mut xs, mut bits, mut refs) = (Vec::new(), Vec::new(), Vec::new());
        for i in 0..rows {
            let x: Vec<f32> = data(&mut rng, d, shape).iter().zip(&c).map(|(v, m)| v * 0.8 + m).collect();
            let diff: Vec<f32> = x.iter().zip(&c).map(|(a, b)| a - b).collect();
            let r = rotated(&x, &c);
            let mean_dot_r = k.dot(&mu, &diff);
            let code = &mut codes[i * padded / 8..(i + 1) * padded / 8];
            bits.push(encode_bits(&k, space, &r, &c_rot, mean_dot_r, code));
            let nibbles = &mut nibbles[i * padded / 2..(i + 1) * padded / 2];
            refs.push(encode_refine(&k, space, &r, &c_rot, mean_dot_r, nibbles));
            xs.push(x);
        }
        let mut packed = vec![0u8; packed_len(rows, padded)];
        pack_codes(&codes, padded, &mut packed);
        let f_add: Vec<f32> = bits.iter().map(|f| f.f_add).collect();
        let f_rescale: Vec<f32> = bits.iter().map(|f| f.f_rescale).collect();
        let norm: Vec<f32> = bits.iter().map(|f| f.norm).collect();
        for _ in 0..queries {
            let q: Vec<f32> = rng.gauss_vec(d).iter().zip(&mean).map(|(v, m)| v + m).collect();
            let query = ScanQuery::new(&rotated(&q, &mu), planes);
            let g = k.l2(&q, &c);
            let g_add = if space == CodeSpace::L2 { g } else { -k.dot(&q, &c) };
            let terms = ScanTerms::new(space, &query, eps0, g_add, g.sqrt());
            let columns = BitColumns { f_add: &f_add, f_rescale: &f_rescale, norm: &norm };
            let mut found = Vec::new();
            k.scan_estimates(&query, &packed, columns, &terms, f32::INFINITY, &mut found);
            assert_eq!(found.len(), rows);
            for (i, s) in found.iter().enumerate() {
                let (truth, kappa) = match space {
                    CodeSpace::L2 => (k.l2_f64(&q, &xs[i]), 2.0),
                    CodeSpace::Ip => (-k.dot_f64(&q, &xs[i]), 1.0),
                };
                let unit =
                    kappa * k.l2_f64(&xs[i], &c).sqrt() * f64::from(g).sqrt() / (padded as f64 - 1.0).sqrt();
                one.add(s.est, s.lower, truth, unit);
                let value = k.refine(&query, s.sum, &nibbles[i * padded / 2..(i + 1) * padded / 2]);
                let (est, lower) = terms.refine(refs[i], norm[i], value);
                five.add(est, lower, truth, unit);
                assert!(f64::from(norm[i]) >= k.l2_f64(&xs[i], &c).sqrt(), "norm is an upper bound");
            }
        }
    }
    (one, five)
}

/// (dimension, mean of the data, shape of the residuals, mu follows the mean)
const SETS: [(usize, f32, &str, bool); 6] = [
    (384, 0.0, "gauss", true),
    (384, 3.0, "gauss", true),
    (384, 0.3, "gauss", false),
    (100, 0.0, "gauss", true),
    (768, 1.0, "skewed", true),
    (1024, 0.0, "gauss", true),
];

#[test]
fn estimates_are_unbiased_and_bounded() {
    for space in [CodeSpace::L2, CodeSpace::Ip] {
        for (d, shift, shape, centred) in SETS {
            let (one, five) = run(space, d, shift, shape, centred, Planes::P6, 2.5);
            println!(
                "{space:?} d {d} shift {shift} {shape} {centred}: 1 bit {:+.4} {:.4} outside {:.4}; 5 bits {:+.4} {:.4} outside {:.4}",
                one.mean(),
                one.sigma(),
                one.outside(),
                five.mean(),
                five.sigma(),
                five.outside()
            );
            // 24,000 pairs, but the 200 rows and 20 queries of a round share their errors' signs.
            assert!(one.mean().abs() < 0.06 && five.mean().abs() < 0.006, "bias");
            assert!(one.outside() < 0.012 && five.outside() < 0.012, "outside the bound");
            assert!((one.sigma() / 0.755 - 1.0).abs() < 0.1, "sigma of 1 bit");
            if centred {
                // 6 planes add their own part: sqrt(.057^2 + .03^2) at |q| = |q - c|.
                assert!(five.sigma() < 0.075, "sigma of 5 bits with 6 planes");
            }
        }
    }
}

#[test]
fn eight_planes_show_the_codes_own_error() {
    for (d, shift, shape, centred) in SETS {
        let (one, five) = run(CodeSpace::L2, d, shift, shape, centred, Planes::P8, 2.5);
        println!("d {d} {shape} {centred}: {:.4} {:.4}", one.sigma(), five.sigma());
        assert!((one.sigma() / 0.755 - 1.0).abs() < 0.1);
        if d >= 384 && centred {
            assert!((five.sigma() / 0.057 - 1.0).abs() < 0.1);
        }
        assert!(one.outside() < 0.012 && five.outside() < 0.012);
    }
}

#[test]
fn a_smaller_eps0_leaves_more_outside() {
    let (one, five) = run(CodeSpace::L2, 384, 0.0, "gauss", true, Planes::P6, 1.0);
    // One standard error, one side: 15.9 %.
    assert!((one.outside() - 0.159).abs() < 0.03 && (five.outside() - 0.159).abs() < 0.03);
}

#[test]
fn nav_error_is_near_the_theory() {
    let k = Kernels::detect();
    let mut rng = Rng(5);
    for d in [128usize, 384, 1024] {
        let mut squares = 0.0;
        let mut sum = 0.0;
        let n = 4000i32;
        for _ in 0..n {
            let (c, q) = (rng.gauss_vec(d), rng.gauss_vec(d));
            let mut code = vec![0u8; d / 2];
            let a = encode_nav(&k, &c, &mut code);
            let mut out = [0.0f32];
            k.nav(&NavQuery::new(&q), &code, &[a], &[0.0], &mut out);
            let unit = (k.norm2_f64(&c) * k.norm2_f64(&q) / (d as f64 - 1.0)).sqrt();
            let e = (f64::from(out[0]) - k.dot_f64(&c, &q)) / unit;
            sum += e;
            squares += e * e;
        }
        let (mean, sigma) = (sum / f64::from(n), (squares / f64::from(n)).sqrt());
        println!("nav d {d}: mean {mean:+.4} sigma {sigma:.4}");
        assert!(mean.abs() < 0.006 && (sigma / 0.106 - 1.0).abs() < 0.1);
    }
}
