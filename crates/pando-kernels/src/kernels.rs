//! [`Kernels`]: the checked face of one kernel table.

use crate::error::UnsupportedSimd;
use crate::metric::Metric;
use crate::packed::packed_len;
use crate::query::{BitColumns, NavQuery, ScanQuery, ScanTerms, Survivor};
use crate::simd::Simd;
use crate::table::{EstimateArgs, NavArgs, Table};

/// The kernels of one instruction set. A small copyable handle: choose it once and pass it along.
///
/// Every set gives the same bits for the same input (NaN and infinities excluded, where only "NaN or not" is
/// the same). All methods panic when slice lengths contradict each other.
#[derive(Clone, Copy)]
pub struct Kernels {
    simd: Simd,
    pub(crate) table: &'static Table,
}

impl std::fmt::Debug for Kernels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Kernels").field(&self.simd).finish()
    }
}

impl Kernels {
    /// The best set of this machine.
    pub fn detect() -> Kernels {
        let best = Simd::ALL.into_iter().rev().find_map(|simd| Kernels::new(simd).ok());
        best.unwrap_or(Kernels::with_table(Simd::Scalar, &crate::scalar::TABLE))
    }

    /// The set named by the environment variable `PANDO_SIMD`, or the best one when it is unset or empty.
    #[allow(clippy::disallowed_methods)] // The one place that reads PANDO_SIMD.
    pub fn from_env() -> Result<Kernels, UnsupportedSimd> {
        match std::env::var("PANDO_SIMD") {
            Ok(name) if !name.is_empty() => Kernels::new(name.parse()?),
            Ok(_) | Err(std::env::VarError::NotPresent) => Ok(Kernels::detect()),
            Err(std::env::VarError::NotUnicode(raw)) => {
                Err(UnsupportedSimd::Unknown(raw.to_string_lossy().into_owned()))
            }
        }
    }

    /// The given set, if this CPU and build have it and it passes a short comparison with the scalar kernels.
    pub fn new(simd: Simd) -> Result<Kernels, UnsupportedSimd> {
        let kernels = Kernels::with_table(simd, simd.table()?);
        if crate::selfcheck::passes(&kernels) { Ok(kernels) } else { Err(UnsupportedSimd::Wrong { simd }) }
    }

    /// A set by its table, which the caller knows to run on this CPU.
    pub(crate) fn with_table(simd: Simd, table: &'static Table) -> Kernels {
        Kernels { simd, table }
    }

    /// Which set this is.
    pub fn simd(&self) -> Simd {
        self.simd
    }

    /// Squared Euclidean distance in f32, 64 virtual lanes.
    #[inline]
    pub fn l2(&self, a: &[f32], b: &[f32]) -> f32 {
        assert_eq!(a.len(), b.len());
        // SAFETY: the table came from Simd::table, which checked the CPU; the lengths are equal.
        unsafe { (self.table.l2)(a, b) }
    }

    /// Inner product in f32, 64 virtual lanes.
    #[inline]
    pub fn dot(&self, a: &[f32], b: &[f32]) -> f32 {
        assert_eq!(a.len(), b.len());
        // SAFETY: as in l2.
        unsafe { (self.table.dot)(a, b) }
    }

    /// `dot(a, a)`.
    #[inline]
    pub fn norm2(&self, a: &[f32]) -> f32 {
        self.dot(a, a)
    }

    /// `(dot(a, b), norm2(b))` in one pass.
    #[inline]
    pub fn dot_norm2(&self, a: &[f32], b: &[f32]) -> (f32, f32) {
        assert_eq!(a.len(), b.len());
        // SAFETY: as in l2.
        unsafe { (self.table.dot_norm2)(a, b) }
    }

    /// `l2(q, row)` for each row of the row-major `rows` (`q.len() * out.len()` values).
    pub fn l2_rows(&self, q: &[f32], rows: &[f32], out: &mut [f32]) {
        assert_eq!(rows.len(), q.len() * out.len());
        if !rows.is_empty() {
            // SAFETY: the CPU was checked with the table; rows holds out.len() rows of the length of q, not 0.
            unsafe { (self.table.l2_rows)(q, rows, out) }
        }
    }

    /// `dot(q, row)` for each row of the row-major `rows` (`q.len() * out.len()` values).
    pub fn dot_rows(&self, q: &[f32], rows: &[f32], out: &mut [f32]) {
        assert_eq!(rows.len(), q.len() * out.len());
        if !rows.is_empty() {
            // SAFETY: as in l2_rows.
            unsafe { (self.table.dot_rows)(q, rows, out) }
        }
    }

    /// All inner products of m rows `a` and n rows `b` of length `d`: `out[i * n + j]` has the bits of
    /// `dot(a_i, b_j)`. Blocked for the cache.
    pub fn dot_matrix(&self, a: &[f32], b: &[f32], d: usize, out: &mut [f32]) {
        assert!(d > 0 && a.len().is_multiple_of(d) && b.len().is_multiple_of(d));
        assert_eq!(out.len(), (a.len() / d) * (b.len() / d));
        if !out.is_empty() {
            // SAFETY: the CPU was checked with the table; the shapes were checked above.
            unsafe { (self.table.dot_matrix)(a, b, d, out) }
        }
    }

    /// `x * (1 / sqrt(norm2(x)))`: one f32 square root, one f32 division, one multiplication an element.
    /// A zero vector gives zeros.
    pub fn normalize(&self, x: &[f32], out: &mut [f32]) {
        assert_eq!(x.len(), out.len());
        let norm2 = self.norm2(x);
        let factor = if norm2 > 0.0 { 1.0 / norm2.sqrt() } else { 0.0 };
        for (o, v) in out.iter_mut().zip(x) {
            *o = v * factor;
        }
    }

    /// Squared Euclidean distance in f64, fixed order.
    pub fn l2_f64(&self, a: &[f32], b: &[f32]) -> f64 {
        assert_eq!(a.len(), b.len());
        // SAFETY: as in l2.
        unsafe { (self.table.l2_f64)(a, b) }
    }

    /// Inner product in f64, fixed order.
    pub fn dot_f64(&self, a: &[f32], b: &[f32]) -> f64 {
        assert_eq!(a.len(), b.len());
        // SAFETY: as in l2.
        unsafe { (self.table.dot_f64)(a, b) }
    }

    /// `dot_f64(a, b)` and `norm2_f64(b)` in one pass.
    pub fn dot_norm2_f64(&self, a: &[f32], b: &[f32]) -> (f64, f64) {
        assert_eq!(a.len(), b.len());
        // SAFETY: as in l2.
        unsafe { (self.table.dot_norm2_f64)(a, b) }
    }

    /// `dot_f64(a, a)`.
    pub fn norm2_f64(&self, a: &[f32]) -> f64 {
        self.dot_f64(a, a)
    }

    /// The distance that the API promises, on original vectors: l2 squared; cosine `1 - cos`, kept in 0..=2
    /// (1 when a vector is zero); dot `-<q, x>`.
    pub fn distance_f64(&self, metric: Metric, q: &[f32], x: &[f32]) -> f64 {
        ExactQuery::new(self, metric, q).distance(x)
    }

    /// `A_j` = sum over dimensions of (bit ? u : max - u) for each of the `out.len()` rows: an exact integer.
    /// `packed` has `packed_len(out.len(), padded)` bytes.
    pub fn scan(&self, q: &ScanQuery, packed: &[u8], out: &mut [u32]) {
        assert_eq!(packed.len(), packed_len(out.len(), q.padded));
        // SAFETY: the CPU was checked with the table; packed holds whole blocks for out.len() rows.
        unsafe { (self.table.scan)(q, packed, out) }
    }

    /// Scans the rows of one leaf part and appends those whose lower bound is at most `threshold` (or NaN; see
    /// [`ScanTerms`] for the exact test), in row order. `columns` has one value a row, `packed` has `packed_len(rows, padded)` bytes.
    pub fn scan_estimates(
        &self,
        query: &ScanQuery,
        packed: &[u8],
        columns: BitColumns<'_>,
        terms: &ScanTerms,
        threshold: f32,
        survivors: &mut Vec<Survivor>,
    ) {
        self.scan_estimates_ahead(query, packed, columns, terms, threshold, survivors, &[]);
    }

    /// As [`Kernels::scan_estimates`]; meanwhile the processor is asked for the bytes `ahead`, which will be scanned
    /// next, as far as they go beside `packed`.
    pub fn scan_estimates_ahead(
        &self,
        query: &ScanQuery,
        packed: &[u8],
        columns: BitColumns<'_>,
        terms: &ScanTerms,
        threshold: f32,
        survivors: &mut Vec<Survivor>,
        ahead: &[u8],
    ) {
        let n = columns.f_add.len();
        assert!(columns.f_rescale.len() == n && columns.norm.len() == n && n <= u32::MAX as usize);
        assert_eq!(packed.len(), packed_len(n, query.padded));
        let args = EstimateArgs { query, packed, columns, terms: *terms, threshold, ahead };
        // SAFETY: the CPU was checked with the table; columns and packed cover the same n rows.
        unsafe { (self.table.estimates)(&args, survivors) }
    }

    /// `<level, q'>` of one row from its refine nibbles (`padded / 2` bytes) and its `A` of the scan; goes
    /// into [`ScanTerms::refine`].
    pub fn refine(&self, q: &ScanQuery, sum: u32, nibbles: &[u8]) -> f32 {
        assert_eq!(nibbles.len() * 2, q.padded);
        // SAFETY: the CPU was checked with the table; w and ones have padded = 2 * nibbles.len() values.
        let mut r = unsafe { (self.table.nibble_dot)(nibbles, &q.w) };
        if !q.ones.is_empty() {
            // With 8 planes 2u - 255 does not fit i8: w is u - 128 and 2u - 255 = 2w + 1.
            // SAFETY: as above.
            r = 2 * r + unsafe { (self.table.nibble_dot)(nibbles, &q.ones) };
        }
        let t = 16 * (2 * sum as i32 - q.bias) + 2 * r - 15 * q.w_sum;
        t as f32 * q.quarter_step
    }

    /// Navigation over 4-bit codes (row-major, `padded / 2` bytes each):
    /// `out[j] = add[j] + w[j] * <v_j, q'>` with the 8-bit query.
    pub fn nav(&self, q: &NavQuery, codes: &[u8], w: &[f32], add: &[f32], out: &mut [f32]) {
        assert_eq!(codes.len() * 2, q.padded * out.len());
        assert!(w.len() == out.len() && add.len() == out.len());
        let args = NavArgs { query: q, codes, w, add };
        // SAFETY: the CPU was checked with the table; codes, w and add cover out.len() rows.
        unsafe { (self.table.nav)(&args, out) }
    }
}

/// A query vector with what its exact f64 distances share.
#[derive(Clone, Copy, Debug)]
pub struct ExactQuery<'a> {
    kernels: Kernels,
    metric: Metric,
    q: &'a [f32],
    norm2: f64,
}

impl<'a> ExactQuery<'a> {
    /// `q` is the original query vector.
    pub fn new(kernels: &Kernels, metric: Metric, q: &'a [f32]) -> Self {
        let norm2 = if metric == Metric::Cosine { kernels.norm2_f64(q) } else { 0.0 };
        ExactQuery { kernels: *kernels, metric, q, norm2 }
    }

    /// As [`Kernels::distance_f64`].
    pub fn distance(&self, x: &[f32]) -> f64 {
        match self.metric {
            Metric::L2 => self.kernels.l2_f64(self.q, x),
            Metric::Dot => 0.0 - self.kernels.dot_f64(self.q, x),
            Metric::Cosine => {
                // The root of the product: equal vectors then have a distance of exactly 0.
                let (dot, norm2) = self.kernels.dot_norm2_f64(self.q, x);
                let norms = (self.norm2 * norm2).sqrt();
                if norms > 0.0 {
                    (1.0 - dot / norms).clamp(0.0, 2.0)
                } else {
                    1.0
                }
            }
        }
    }
}

/// True when denormal numbers are neither flushed on output (FTZ) nor read as zero (DAZ) on this thread.
/// A process that writes roots checks this once per worker thread: the bytes depend on it.
pub fn denormals_on() -> bool {
    let small = std::hint::black_box(f32::MIN_POSITIVE);
    let denormal = std::hint::black_box(f32::from_bits(1 << 20));
    let kept = std::hint::black_box(small * 0.5) != 0.0;
    let read = std::hint::black_box(denormal * 1024.0) != 0.0;
    kept && read
}
