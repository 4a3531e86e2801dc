//! The query side: quantised queries, the constants of one leaf, survivors.
//!
//! A scan query is quantised once per query by a symmetric uniform quantiser: with M = max |q'_i| and
//! max = 2^p - 1, step = 2M / max, `q'_i ~= step * (u_i - max / 2)`, u_i in 0..=max, ties to even. Then
//! `<s, q'> ~= step * (A - D max / 2)` for the signs s of a code, with the integer
//! `A = sum (bit ? u_i : max - u_i)`, which tables of 16 entries per 4 dimensions give.

use crate::codes::RefineFactors;
use crate::kernels::Kernels;
use crate::metric::CodeSpace;
use crate::scalar;
use crate::table::Table;

/// Bit planes of a scan query: more are more exact; 8 cost about a third more time than 6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Planes {
    /// 15 steps.
    P4,
    /// 63 steps: the default; a table entry of 4 dimensions just fits a byte.
    #[default]
    P6,
    /// 255 steps: two tables.
    P8,
}

impl Planes {
    /// The largest quantised value, `2^p - 1`.
    pub const fn max(self) -> u32 {
        match self {
            Planes::P4 => 15,
            Planes::P6 => 63,
            Planes::P8 => 255,
        }
    }
}

/// A query prepared for 1-bit scans and refinement. Reuse it with [`ScanQuery::prepare`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScanQuery {
    pub(crate) padded: usize,
    /// Step of the quantiser.
    pub(crate) step: f32,
    /// `step / 4`.
    pub(crate) quarter_step: f32,
    /// D / (4 (D - 1)), D / 48 and 1 / sqrt(D - 1), for [`ScanTerms`].
    code_share: f64,
    step_share: f64,
    norm_share: f64,
    /// `D * max`.
    pub(crate) bias: i32,
    /// Low bytes of the tables: 16 for each 4 dimensions. With 4 or 6 planes the smallest entry of each table is
    /// taken off.
    pub(crate) lut: Vec<u8>,
    /// What was taken off, all tables together.
    pub(crate) least: u32,
    /// The two entries for 8 dimensions always fit a byte together; nearly always so with up to 6 planes.
    pub(crate) narrow: bool,
    /// High bytes, with 8 planes only.
    pub(crate) lut_high: Vec<u8>,
    /// Refine weights: `2u - max`, with 8 planes `u - 128`.
    pub(crate) w: Vec<i8>,
    /// All ones, with 8 planes only.
    pub(crate) ones: Vec<i8>,
    /// Sum of `2u - max`.
    pub(crate) w_sum: i32,
    u: Vec<u8>,
}

impl ScanQuery {
    /// `q_rot` = P(q - mu), a multiple of 64 values, finite.
    pub fn new(q_rot: &[f32], planes: Planes) -> Self {
        let mut query = ScanQuery::default();
        query.prepare(q_rot, planes);
        query
    }

    /// As [`ScanQuery::new`], into the buffers of this one.
    pub fn prepare(&mut self, q_rot: &[f32], planes: Planes) {
        self.fill(&scalar::TABLE, q_rot, planes);
    }

    /// As [`ScanQuery::prepare`], faster with SIMD kernels; the same bits.
    pub fn prepare_with(&mut self, k: &Kernels, q_rot: &[f32], planes: Planes) {
        self.fill(k.table, q_rot, planes);
    }

    fn fill(&mut self, table: &Table, q_rot: &[f32], planes: Planes) {
        let d = q_rot.len();
        assert!(d > 0 && d.is_multiple_of(64));
        let max = planes.max();
        let half = max as f32 * 0.5;
        self.u.resize(d, 0);
        self.lut.resize(d * 4, 0);
        // SAFETY: a Kernels value holds a table for this CPU, the scalar one runs everywhere; the length is a
        // multiple of 64, u has one byte a value.
        let m = unsafe { (table.max_abs)(q_rot) };
        let inverse = half / m;
        // A zero query, or one so small that the inverse overflows, is a query of zeros: step 0.
        let (step, inverse) = if inverse.is_finite() { (m / half, inverse) } else { (0.0, 0.0) };
        // SAFETY: as above.
        unsafe { (table.quantise)(q_rot, [inverse, half, 0.0, max as f32], &mut self.u) }
        self.padded = d;
        let dims = d as f64;
        self.code_share = dims / (4.0 * (dims - 1.0));
        self.step_share = dims / 48.0;
        self.norm_share = 1.0 / (dims - 1.0).sqrt();
        self.step = step;
        self.quarter_step = step * 0.25;
        self.bias = d as i32 * max as i32;
        // SAFETY: as above; u is at most max.
        let sums = unsafe { (table.byte_sums)(&self.u, max as u8) };
        self.w_sum = 2 * sums.sum as i32 - self.bias;
        self.w.clear();
        self.ones.clear();
        if planes == Planes::P8 {
            self.w.extend(self.u.iter().map(|u| (u ^ 0x80) as i8));
            self.ones.resize(d, 1);
            self.least = 0;
            self.narrow = false;
            self.fill_wide_tables();
        } else {
            self.w.extend(self.u.iter().map(|u| (2 * u).wrapping_sub(max as u8) as i8));
            self.lut_high.clear();
            self.least = sums.least;
            self.narrow = sums.widest <= 255;
            // SAFETY: as above; lut has 16 bytes for 4 values, which are at most max <= 63.
            unsafe { (table.byte_tables)(&self.u, max as u8, &mut self.lut) }
        }
    }

    /// Tables of 8 planes: sums of up to 1020 in two bytes.
    fn fill_wide_tables(&mut self) {
        self.lut_high.resize(self.padded * 4, 0);
        let tables = self.lut.chunks_exact_mut(16).zip(self.lut_high.chunks_exact_mut(16));
        for ((low, high), u) in tables.zip(self.u.chunks_exact(4)) {
            for e in 0..16 {
                let mut sum = 0u16;
                for k in 0..4 {
                    sum += u16::from(if e >> k & 1 == 1 { u[k] } else { 255 - u[k] });
                }
                low[e] = sum as u8;
                high[e] = (sum >> 8) as u8;
            }
        }
    }

    /// Dimensions of the rotated query.
    pub fn padded(&self) -> usize {
        self.padded
    }

    /// Step of the quantiser; a coordinate is off by at most half of it.
    pub fn step(&self) -> f32 {
        self.step
    }

    /// `<s/2, q'>` of a code from its scan sum `A`, the `<xucb, q'>` of the 1-bit estimate.
    pub fn half_sign_product(&self, sum: u32) -> f32 {
        (2 * sum as i32 - self.bias) as f32 * self.quarter_step
    }
}

/// Factor columns of 1-bit codes, one value a row (see [`crate::BitFactors`]).
#[derive(Clone, Copy, Debug)]
pub struct BitColumns<'a> {
    /// Additive part of the estimate.
    pub f_add: &'a [f32],
    /// Factor of `<xucb, q'>`.
    pub f_rescale: &'a [f32],
    /// Residual norm, rounded up.
    pub norm: &'a [f32],
}

/// 1 / sqrt(12), the deviation of a uniform error of one step, and 1 % more, as |level| is a little longer than the
/// part of it along r.
const REFINE_STEP: f64 = 0.288_675_134_594_812_9 * 1.01;

/// The constants of one (query, leaf) pair.
///
/// Estimate: `est = fma(f_rescale, <xucb, q'>, f_add + g_add)`. Bound of a 1-bit code:
/// `err^2 = eps0^2 [ g^2 (f_rescale^2 D/4 - kappa^2 |r|^2) / (D-1) + f_rescale^2 step^2 D / 48 ]`,
/// the first part for the code (kappa = 2 in L2, 1 in Ip; g = |q - c|), the second for the quantised query
/// (independent uniform errors of half a step). `lower = (est - err) - slack`, where slack is
/// `2^-20 (|f_add| + |g_add|)` for f32 rounding. In the kernels: `alpha` and `beta` carry the two coefficients
/// divided by `scale` = max(g, step), `err = scale sqrt(max(0, e2))`, e2 = fma(x, x, -(y y)), x = f_rescale alpha,
/// y = norm beta.
///
/// The scan tests without the root: with `d = fma(f_rescale, <xucb, q'>, f_add + (g_add - threshold))` and
/// `n = fma(-slack, |f_add| + |g_add|, d) / scale` (times its reciprocal), a row is dropped if n > 0 and
/// n n > e2: but for rounding, `lower > threshold`. Overflows give infinities and NaN, which are kept.
#[derive(Clone, Copy, Debug)]
pub struct ScanTerms {
    pub(crate) g_add: f32,
    pub(crate) g_abs: f32,
    pub(crate) alpha: f32,
    pub(crate) beta: f32,
    pub(crate) scale: f32,
    /// 1 / scale; 1 if scale is 0.
    pub(crate) inverse: f32,
    pub(crate) slack: f32,
    refine_code: f32,
    refine_query: f32,
}

impl ScanTerms {
    /// `g_add`: |q - c|^2 (L2) or -<q, c> (Ip). `g_err`: |q - c| in both spaces. `eps0`: how many standard
    /// errors the bound is away (2.5 leaves 0.6 % of rows outside on one side).
    pub fn new(space: CodeSpace, query: &ScanQuery, eps0: f32, g_add: f32, g_err: f32) -> Self {
        let (eps0, kappa) = (f64::from(eps0), space.kappa());
        let scale = if g_err > query.step { g_err } else { query.step };
        let inverse = 1.0 / f64::from(scale);
        let (scale, inverse, g, step) = if (inverse as f32).is_finite() {
            (scale, inverse as f32, f64::from(g_err) * inverse, f64::from(query.step) * inverse)
        } else {
            (0.0, 1.0, 0.0, 0.0)
        };
        let alpha = eps0 * (g * g * query.code_share + step * step * query.step_share).sqrt();
        let beta = eps0 * g * kappa * query.norm_share;
        ScanTerms {
            g_add,
            g_abs: g_add.abs(),
            alpha: (alpha * (1.0 + 1e-6)) as f32,
            // The stored norm is up to 2^-16 too large, which would shrink the bound: take that back.
            beta: (beta * (1.0 - 3.2e-5)) as f32,
            scale,
            inverse,
            slack: 1.0 / 1_048_576.0,
            refine_code: (eps0 * g) as f32,
            refine_query: (eps0 * kappa * step * REFINE_STEP) as f32,
        }
    }

    /// Estimate and lower bound of a refined row. `norm` is that of the 1-bit factors, `value` comes from
    /// [`crate::Kernels::refine`]. Bound: `eps0 sqrt((g f_error)^2 + (kappa |r| step)^2 / 12)`.
    #[inline]
    pub fn refine(&self, f: RefineFactors, norm: f32, value: f32) -> (f32, f32) {
        let est = f.f_rescale.mul_add(value, f.f_add + self.g_add);
        let x = f.f_error * self.refine_code;
        let y = norm * self.refine_query;
        let e = self.scale * (x * x + y * y).sqrt();
        (est, (est - e) - (f.f_add.abs() + self.g_abs) * self.slack)
    }
}

/// A row that passed the threshold of a scan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Survivor {
    /// Place in the scanned part.
    pub index: u32,
    /// Its `A`, wanted by [`crate::Kernels::refine`].
    pub sum: u32,
    /// Estimated distance.
    pub est: f32,
    /// Lower bound of the distance.
    pub lower: f32,
}

/// A query prepared for navigation: `q'_i ~= step * w_i` with w_i in -127..=127, step = max |q'_i| / 127.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NavQuery {
    pub(crate) padded: usize,
    pub(crate) w: Vec<i8>,
    pub(crate) w_sum: i32,
    pub(crate) half_step: f32,
}

impl NavQuery {
    /// `q_rot` = P(q - mu), a multiple of 64 values, finite.
    pub fn new(q_rot: &[f32]) -> Self {
        let mut query = NavQuery::default();
        query.prepare(q_rot);
        query
    }

    /// As [`NavQuery::new`], into the buffers of this one.
    pub fn prepare(&mut self, q_rot: &[f32]) {
        self.fill(&scalar::TABLE, q_rot);
    }

    /// As [`NavQuery::prepare`], faster with SIMD kernels; the same bits.
    pub fn prepare_with(&mut self, k: &Kernels, q_rot: &[f32]) {
        self.fill(k.table, q_rot);
    }

    fn fill(&mut self, table: &Table, q_rot: &[f32]) {
        assert!(!q_rot.is_empty() && q_rot.len().is_multiple_of(64));
        self.w.resize(q_rot.len(), 0);
        // SAFETY: as in ScanQuery::fill.
        let m = unsafe { (table.max_abs)(q_rot) };
        let inverse = 127.0 / m;
        let (step, inverse) = if inverse.is_finite() { (m / 127.0, inverse) } else { (0.0, 0.0) };
        let bytes = bytemuck::cast_slice_mut(&mut self.w);
        // SAFETY: as in ScanQuery::fill; the low byte of a negative integer is its i8.
        unsafe { (table.quantise)(q_rot, [inverse, 0.0, -127.0, 127.0], bytes) }
        self.padded = q_rot.len();
        self.w_sum = self.w.iter().map(|w| i32::from(*w)).sum();
        self.half_step = step * 0.5;
    }
}
