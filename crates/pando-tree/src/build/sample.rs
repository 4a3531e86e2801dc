//! What a build derives from a sample of its rows: root mean, norm bands, split size.

use pando_kernels::Metric;

use crate::cluster::{add, mean_of, sample_rows};
use crate::error::TreeError;
use crate::hashing::{hash, sample};
use crate::reader::Reader;
use crate::types::TreeConfig;

/// Quantiles of the norms (in per cent) that separate the bands under dot.
const QUANTILES: [usize; 3] = [50, 80, 95];
/// A threshold is kept only if it is this much above the one before (at first: the 5 % quantile): vectors of nearly
/// one norm are one band.
const APART: f32 = 1.05;

/// Root mean and norm thresholds from the rows with the smallest seeded hashes.
pub(crate) fn mean_and_bands(
    cfg: &TreeConfig,
    reader: &Reader<'_>,
    rows: &[u64],
) -> Result<(Vec<f32>, Vec<f32>), TreeError> {
    let d = cfg.dim;
    let mut places = sample(rows.len(), sample_rows(d), hash(&[cfg.seed, 1]), |i| rows[i]);
    places.sort_unstable();
    let chosen: Vec<u64> = places.iter().map(|&i| rows[i as usize]).collect();
    let mut sum = vec![0f64; d];
    let mut norms: Vec<f32> = Vec::new();
    reader.batches(&chosen, |_, prepared| {
        for x in prepared.chunks_exact(d) {
            if cfg.metric == Metric::Dot {
                norms.push(reader.env.kernels.norm2(x).sqrt());
            } else {
                add(&mut sum, x);
            }
        }
        Ok(())
    })?;
    let mut mean = vec![0f32; d];
    mean_of(&sum, chosen.len(), &mut mean);
    Ok((mean, thresholds(norms)))
}

fn thresholds(mut norms: Vec<f32>) -> Vec<f32> {
    if norms.is_empty() {
        return Vec::new();
    }
    norms.sort_unstable_by(f32::total_cmp);
    let quantile = |percent: usize| norms[(norms.len() - 1) * percent / 100];
    let mut last = quantile(5);
    let mut out = Vec::new();
    for percent in QUANTILES {
        let norm = quantile(percent);
        if norm > last * APART {
            out.push(norm);
            last = norm;
        }
    }
    // A last band needs rows above the threshold.
    if out.last() == norms.last() {
        out.pop();
    }
    out
}

/// Split size S of a collection with this many live rows.
pub(crate) fn split_size(dim: usize, rows: usize) -> u32 {
    if rows >= 1_000_000 || dim <= 64 { 256 } else { 128 }
}

/// Mean rows a leaf is aimed at: 0.65 S.
pub(crate) fn target_rows(split_size: u32) -> usize {
    (split_size as usize * 65 / 100).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_need_norms_that_differ() {
        assert!(thresholds(vec![1.0; 100]).is_empty());
        assert!(thresholds((0..100).map(|i| 1.0 + i as f32 * 1e-7).collect()).is_empty());
        let wide: Vec<f32> = (0..1000).map(|i| 1.0 + i as f32).collect();
        assert_eq!(thresholds(wide).len(), 3);
        assert!(thresholds(Vec::new()).is_empty());
    }
}
