//! Prepared space (what centroids and codes are in) and routing space (what "nearest leaf" is measured in).
//!
//! Prepared: the vector itself, or the normalised vector under cosine. Routing: under l2 and cosine the prepared
//! vector minus the root mean (the dot form of a distance loses digits far from the origin), under dot its direction.
//! Distances of routing are squared L2 between routing vectors.

use pando_kernels::{Kernels, Metric};

/// Metric, dimension, kernels and root mean.
#[derive(Clone, Copy)]
pub(crate) struct Space<'a> {
    pub dim: usize,
    pub metric: Metric,
    pub kernels: Kernels,
    /// Root mean (not used under dot).
    pub mean: &'a [f32],
}

impl Space<'_> {
    /// Turns original vectors (row-major) into prepared ones.
    pub fn prepare(&self, rows: &mut [f32]) {
        if self.metric == Metric::Cosine {
            let mut x = vec![0f32; self.dim];
            for row in rows.chunks_exact_mut(self.dim) {
                x.copy_from_slice(row);
                self.kernels.normalize(&x, row);
            }
        }
    }

    /// Routing vectors of prepared vectors (rows or centroids), row-major.
    pub fn route(&self, prepared: &[f32], out: &mut [f32]) {
        for (p, u) in prepared.chunks_exact(self.dim).zip(out.chunks_exact_mut(self.dim)) {
            if self.metric == Metric::Dot {
                direction(&self.kernels, p, u);
            } else {
                for ((u, p), m) in u.iter_mut().zip(p).zip(self.mean) {
                    *u = p - m;
                }
            }
        }
    }

    /// Vectors for clustering the rows of one leaf: relative to its centroid, or directions under dot.
    pub fn local(&self, prepared: &[f32], centroid: &[f32], out: &mut [f32]) {
        Space { mean: centroid, ..*self }.route(prepared, out);
    }
}

/// x / |x|; zero stays zero. Norms whose square leaves the range of f32 are met by an exact power of two first.
pub(crate) fn direction(k: &Kernels, x: &[f32], out: &mut [f32]) {
    let n2 = k.norm2(x);
    if (1e-30..=1e30).contains(&n2) {
        k.normalize(x, out);
        return;
    }
    let max = x.iter().fold(0f32, |m, v| m.max(v.abs()));
    if max == 0.0 || !max.is_finite() {
        out.fill(0.0);
        return;
    }
    let exponent = ((max.to_bits() >> 23) & 0xff) as i32 - 127;
    let scale = f32::from_bits(((127 - exponent.clamp(-126, 126)) as u32) << 23);
    let scaled: Vec<f32> = x.iter().map(|v| v * scale).collect();
    k.normalize(&scaled, out);
}

/// Whether a squared distance to a centroid is no more than rounding of equal vectors.
pub(crate) fn is_zero_radius(distance2: f32, centroid_norm2: f32) -> bool {
    distance2 <= 1e-13 * centroid_norm2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directions_of_extreme_norms() {
        let k = Kernels::detect();
        for scale in [1e-30f32, 1e-19, 1e-15, 1.0, 1e15, 1e19, 1e30] {
            let mut out = [0f32; 3];
            direction(&k, &[3.0 * scale, 0.0, 4.0 * scale], &mut out);
            assert!((out[0] - 0.6).abs() < 1e-5 && (out[2] - 0.8).abs() < 1e-5, "{scale}: {out:?}");
        }
        let mut out = [1f32; 2];
        direction(&k, &[0.0, -0.0], &mut out);
        assert_eq!(out, [0.0, 0.0]);
    }
}
