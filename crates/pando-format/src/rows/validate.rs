//! What the metric asks of vectors.

use pando_kernels::Metric;

use crate::error::InputError;
use crate::rows::Rows;

/// The squared norm is taken here in f64 and by kernels in f32 with another order of sums; this share is left
/// between the two, so that what is accepted here is normal there.
const SLACK: f64 = 1e-3;

/// Squared norm in f64, eight lanes in a fixed order.
fn squared_norm(x: &[f32]) -> f64 {
    let mut lanes = [0.0f64; 8];
    let (chunks, rest) = x.as_chunks::<8>();
    for chunk in chunks {
        for (lane, &v) in lanes.iter_mut().zip(chunk) {
            *lane += f64::from(v) * f64::from(v);
        }
    }
    lanes.iter().sum::<f64>() + rest.iter().map(|&v| f64::from(v) * f64::from(v)).sum::<f64>()
}

/// Checks one vector: finite, not zero under cosine, and of a squared norm that is zero or a normal f32.
pub fn check_vector(metric: Metric, x: &[f32]) -> Result<(), String> {
    if let Some(at) = x.iter().position(|v| !v.is_finite()) {
        return Err(format!("element {at} is {}", x[at]));
    }
    // The sum of squares cannot be zero here unless every element is: squares of f32 are normal in f64.
    let norm = squared_norm(x);
    if norm == 0.0 {
        return match metric {
            Metric::Cosine => Err("the vector is zero, which has no direction under cosine".into()),
            Metric::L2 | Metric::Dot => Ok(()),
        };
    }
    let (low, high) = (f64::from(f32::MIN_POSITIVE) * (1.0 + SLACK), f64::from(f32::MAX) * (1.0 - SLACK));
    if norm < low {
        Err("the vector's squared norm is too small for f32".into())
    } else if norm > high {
        Err("the vector's squared norm is too large for f32".into())
    } else {
        Ok(())
    }
}

impl Rows {
    /// Checks every vector against the metric. The error names the first bad record.
    pub fn validate(&self, metric: Metric) -> Result<(), InputError> {
        for (i, id) in self.ids().iter().enumerate() {
            check_vector(metric, self.vector(i))
                .map_err(|what| InputError::row(i, "vector", what).with_id(id))?;
        }
        Ok(())
    }
}
