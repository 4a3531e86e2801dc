//! What the codes, the tree and the queries of one root share.

use pando_kernels::{CodeSpace, Kernels, Metric, Rotation};

/// Kernels, metric, rotation and root mean of one root. Immutable; meant to be shared by an `Arc`.
#[derive(Clone)]
pub struct Frame {
    kernels: Kernels,
    metric: Metric,
    rotation: Rotation,
    mean: Vec<f32>,
}

impl Frame {
    /// `seed` is the collection's seed, `mean` the root mean in prepared space (its length is the dimension; zeros
    /// before the first root).
    pub fn new(kernels: Kernels, metric: Metric, seed: u64, mean: Vec<f32>) -> Self {
        let rotation = Rotation::new(seed, mean.len());
        Self { kernels, metric, rotation, mean }
    }

    /// The kernel set in use.
    pub fn kernels(&self) -> &Kernels {
        &self.kernels
    }

    /// The collection's metric.
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// The space that codes estimate: squared L2, or minus the inner product.
    pub fn space(&self) -> CodeSpace {
        self.metric.code_space()
    }

    /// Dimension of the vectors.
    pub fn dim(&self) -> usize {
        self.mean.len()
    }

    /// Dimension of the codes.
    pub fn padded(&self) -> usize {
        self.rotation.padded()
    }

    /// The rotation of the codes.
    pub fn rotation(&self) -> &Rotation {
        &self.rotation
    }

    /// The root mean, in prepared space.
    pub fn mean(&self) -> &[f32] {
        &self.mean
    }

    /// Writes the prepared form of `x` to `out`: normalised under cosine, else a copy.
    pub fn prepare(&self, x: &[f32], out: &mut [f32]) {
        match self.metric {
            Metric::Cosine => self.kernels.normalize(x, out),
            Metric::L2 | Metric::Dot => out.copy_from_slice(x),
        }
    }

    /// Distance in prepared space from a prepared query to a row as it is stored (not prepared), in one pass:
    /// squared L2; `2 - 2 cos`; minus the inner product. Good to about 1e-5.
    #[inline]
    pub fn exact(&self, prepared_query: &[f32], row: &[f32]) -> f32 {
        match self.metric {
            Metric::L2 => self.kernels.l2(prepared_query, row),
            Metric::Dot => -self.kernels.dot(prepared_query, row),
            Metric::Cosine => {
                let (dot, norm2) = self.kernels.dot_norm2(prepared_query, row);
                2.0 - 2.0 * (dot / norm2.sqrt())
            }
        }
    }

    /// [`Frame::exact`] of a distance that [`pando_kernels::ExactQuery`] gave for the original vectors.
    #[inline]
    pub fn exact_of(&self, distance: f64) -> f32 {
        match self.metric {
            Metric::L2 | Metric::Dot => distance as f32,
            Metric::Cosine => (2.0 * distance) as f32,
        }
    }

    /// How f32 rounds here.
    pub(crate) fn rounding(&self) -> Rounding {
        let relative = (self.dim().div_ceil(64) + 16) as f32 * f32::EPSILON;
        let length = match self.metric {
            Metric::Cosine => 2.0 * relative,
            Metric::L2 | Metric::Dot => 1e-17,
        };
        Rounding { metric: self.metric, relative, length, vanishing: self.dim() as f32 * f32::MIN_POSITIVE }
    }
}

/// Bounds on the rounding of f32 distances.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rounding {
    metric: Metric,
    /// Relative error that no f32 sum of `dim` products exceeds: 64 lanes of fused multiply-adds, a fold of six steps,
    /// and a handful of operations around them, doubled.
    pub(crate) relative: f32,
    /// A difference of two prepared vectors may be off by this much beyond its relative error: under cosine both were
    /// normalised, otherwise squares less than any f32 are lost.
    pub(crate) length: f32,
    /// Squares below the smallest normal number vanish.
    vanishing: f32,
}

impl Rounding {
    /// Rows whose [`Frame::exact`] distances differ by less than this from `distance` may change places with it when
    /// they are ranked in f64. `query_norm` and `row_norm` (an upper bound) matter under dot only.
    pub(crate) fn margin(&self, distance: f32, query_norm: f32, row_norm: f32) -> f32 {
        let one_sided = match self.metric {
            Metric::L2 => self.relative * distance + self.vanishing,
            // The rounding of the cosine itself and of two norms, doubled like the distance 2 - 2 cos.
            Metric::Cosine => 4.0 * self.relative,
            Metric::Dot => self.relative * query_norm * row_norm + self.vanishing,
        };
        2.0 * one_sided
    }
}

impl Default for Rounding {
    fn default() -> Self {
        Self { metric: Metric::L2, relative: 0.0, length: 0.0, vanishing: 0.0 }
    }
}
