//! Encoding: 1-bit codes, their 4 refining bits, and the 4-bit codes of navigation.
//!
//! With r' = P(x - c), c' = P(c - mu), q' = P(q - mu) and D = padded dimensions, a code is a vector g (`xucb`)
//! near the direction of r', and the residual product is estimated without bias by
//! `<r', q' - c'> ~= |r|^2 <g, q' - c'> / <r', g>`. In factor form
//!
//! * L2: `|q - x|^2 ~= f_add + |q - c|^2 + f_rescale <g, q'>`,
//!   `f_rescale = -2 |r|^2 / <r', g>`, `f_add = |r|^2 - f_rescale <g, c'>`;
//! * Ip: `-<q, x> ~= f_add - <q, c> + f_rescale <g, q'>`,
//!   `f_rescale = -|r|^2 / <r', g>`, `f_add = -(<mu, r> + <c', r'>) - f_rescale <g, c'>`.
//!
//! * 1 bit: g = s / 2, s = sign of r' (bit 1 = sign bit clear).
//! * 5 bits: g = 8 s + (e - 7.5), e in 0..=15: with m = min(15, floor(t |r'_i|)), |g_i| = m + 1/2, so e = m for a
//!   positive and 15 - m for a negative coordinate.
//! * 4 bits (navigation): g = u - 7.5, |g_i| = m + 1/2 with m = min(7, floor(t |c'_i|)).
//!
//! t is the best of a fixed list of multiples of the Gaussian optimum (clamping outliers on purpose: a third less
//! error than fitting the largest coordinate), chosen by the largest cosine of g and r'.
//!
//! Nibbles: 64 dimensions fill 32 bytes; byte j holds dimension j in its low and j + 32 in its high half.
//! A zero residual has f_rescale = norm = f_error = 0 and an exact estimate.

use crate::kernels::Kernels;
use crate::metric::CodeSpace;
use crate::table::RaySums;

/// Factors of a 1-bit code.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BitFactors {
    /// Additive part of the estimate.
    pub f_add: f32,
    /// Factor of `<s / 2, q'>`.
    pub f_rescale: f32,
    /// |x - c|, rounded up by less than 2^-15 so that it bounds the true value in spite of the rotation's rounding.
    pub norm: f32,
}

/// Factors of a 5-bit code.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RefineFactors {
    /// Additive part of the estimate.
    pub f_add: f32,
    /// Factor of `<level, q'>`.
    pub f_rescale: f32,
    /// One standard error for |q - c| = 1: `kappa |r| sqrt((1 - a^2) / a^2) / sqrt(D - 1)`, a = the code's cosine.
    pub f_error: f32,
}

/// Multiples of the Gaussian optimum tried for t.
const RAY_GRID: [f64; 9] = [0.72, 0.8, 0.88, 0.94, 1.0, 1.06, 1.14, 1.24, 1.38];
/// 1 / step of the best uniform 32-level quantiser of a unit Gaussian.
const OPTIMUM_32: f64 = 1.0 / 0.1881;
/// The same for 16 levels.
const OPTIMUM_16: f64 = 1.0 / 0.3352;

/// Encodes the signs of `r` (r' = P(x - c)) into `code` (an eighth of its length, LSB first). `c` is
/// c' = P(c - mu); `mean_dot_r` is <mu, x - c> (Ip only, else ignored).
pub fn encode_bits(
    k: &Kernels,
    space: CodeSpace,
    r: &[f32],
    c: &[f32],
    mean_dot_r: f32,
    code: &mut [u8],
) -> BitFactors {
    check(r, c);
    assert_eq!(code.len() * 8, r.len());
    // SAFETY: the CPU was checked with the table; the lengths were checked above.
    let sums = unsafe { (k.table.bits)(r, c, code) };
    let norm2 = squared_norm(r, sums.norm2);
    let product = f64::from(sums.abs) * 0.5;
    let signed_c = f64::from(sums.signed_c) * 0.5;
    let (f_add, f_rescale) = factors(k, space, r, c, mean_dot_r, norm2, product, signed_c);
    BitFactors { f_add, f_rescale, norm: (norm2.sqrt() * (1.0 + 1.0 / 65536.0)) as f32 }
}

/// Encodes the refining nibbles of `r` (half its length in bytes); arguments as in [`encode_bits`].
pub fn encode_refine(
    k: &Kernels,
    space: CodeSpace,
    r: &[f32],
    c: &[f32],
    mean_dot_r: f32,
    nibbles: &mut [u8],
) -> RefineFactors {
    check(r, c);
    assert_eq!(nibbles.len() * 2, r.len());
    let norm2 = squared_norm(r, k.norm2(r));
    let sums = encode_ray(k, r, c, norm2, OPTIMUM_32, 15.0, 0, nibbles);
    let (product, signed_c) = (f64::from(sums.num) * 0.5, f64::from(sums.signed_c) * 0.5);
    let (f_add, f_rescale) = factors(k, space, r, c, mean_dot_r, norm2, product, signed_c);
    let ratio = norm2 * f64::from(sums.den) * 0.25 / (product * product) - 1.0;
    let f_error = if ratio > 0.0 && product > 0.0 {
        let one = (ratio / (r.len() - 1) as f64).sqrt();
        (space.kappa() * norm2.sqrt() * one * (1.0 + 1.0 / 2048.0)) as f32
    } else {
        0.0
    };
    RefineFactors { f_add, f_rescale, f_error }
}

/// Encodes a rotated centroid `c_rot` = P(c - mu) for navigation into `nibbles` (half its length in bytes) and
/// returns the scale a of `<c', q'> ~= a <v, q'>`, v = u - 7.5; 0 for the zero vector.
pub fn encode_nav(k: &Kernels, c_rot: &[f32], nibbles: &mut [u8]) -> f32 {
    check(c_rot, c_rot);
    assert_eq!(nibbles.len() * 2, c_rot.len());
    let norm2 = squared_norm(c_rot, k.norm2(c_rot));
    let sums = encode_ray(k, c_rot, c_rot, norm2, OPTIMUM_16, 7.0, 8, nibbles);
    let product = f64::from(sums.num) * 0.5;
    if product > 0.0 { (norm2 / product) as f32 } else { 0.0 }
}

fn check(r: &[f32], c: &[f32]) {
    assert!(!r.is_empty() && r.len().is_multiple_of(64) && r.len() == c.len());
}

/// |r|^2; where the f32 sum loses bits to underflow or overflows, again in f64 (one order on every path).
fn squared_norm(r: &[f32], sum: f32) -> f64 {
    if (1e-25..f32::INFINITY).contains(&sum) {
        f64::from(sum)
    } else {
        r.iter().fold(0.0, |s, v| s + f64::from(*v) * f64::from(*v))
    }
}

/// (f_add, f_rescale) from |r|^2, <r', g> and <g, c'>.
fn factors(
    k: &Kernels,
    space: CodeSpace,
    r: &[f32],
    c: &[f32],
    mean_dot_r: f32,
    norm2: f64,
    product: f64,
    g_dot_c: f64,
) -> (f32, f32) {
    let rescale = if product > 0.0 { (-space.kappa() * norm2 / product) as f32 } else { 0.0 };
    // The rounded factor is used again, so that both parts of the estimate carry the same error.
    let cross = f64::from(rescale) * g_dot_c;
    let add = match space {
        CodeSpace::L2 => norm2 - cross,
        CodeSpace::Ip => -(f64::from(mean_dot_r) + f64::from(k.dot(r, c))) - cross,
    };
    (add as f32, rescale)
}

/// Chooses t, writes the nibbles, returns the sums at the chosen t. All zero for a zero vector.
fn encode_ray(
    k: &Kernels,
    x: &[f32],
    c: &[f32],
    norm2: f64,
    optimum: f64,
    top: f32,
    bias: u8,
    nibbles: &mut [u8],
) -> RaySums {
    let unit = optimum * (x.len() as f64 / norm2).sqrt();
    if !((unit * 2.0) as f32).is_finite() {
        nibbles.fill(0);
        return RaySums { num: 0.0, den: 0.0, signed_c: 0.0 };
    }
    let mut best = (0.0f64, 1.0f64, unit as f32);
    for factor in RAY_GRID {
        let t = (unit * factor) as f32;
        // SAFETY: the CPU was checked with the table; the length is a multiple of 64, t and x are finite.
        let sums = unsafe { (k.table.ray)(x, t, top) };
        let (num, den) = (f64::from(sums.num), f64::from(sums.den));
        // num^2 / den is the squared cosine but for a constant; compared without dividing.
        if num * num * best.1 > best.0 * best.0 * den {
            best = (num, den, t);
        }
    }
    // SAFETY: as above; nibbles has half the length of x, c the same length.
    unsafe { (k.table.ray_encode)(x, c, best.2, top, bias, nibbles) }
}
