//! The three metrics.

use std::fmt;
use std::str::FromStr;

/// How the distance of two vectors is measured. Lower is always closer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Metric {
    /// Squared Euclidean distance.
    L2,
    /// `1 - cos`.
    Cosine,
    /// `-<a, b>`.
    Dot,
}

impl Metric {
    /// The name used in the API and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Metric::L2 => "l2",
            Metric::Cosine => "cosine",
            Metric::Dot => "dot",
        }
    }

    /// The space in which codes of this metric estimate: cosine works on normalised vectors in L2.
    pub const fn code_space(self) -> CodeSpace {
        match self {
            Metric::L2 | Metric::Cosine => CodeSpace::L2,
            Metric::Dot => CodeSpace::Ip,
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The text is not the name of a metric.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown metric {0:?}: use l2, cosine or dot")]
pub struct UnknownMetric(pub String);

impl FromStr for Metric {
    type Err = UnknownMetric;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        match s {
            "l2" => Ok(Metric::L2),
            "cosine" => Ok(Metric::Cosine),
            "dot" => Ok(Metric::Dot),
            other => Err(UnknownMetric(other.to_owned())),
        }
    }
}

/// What the estimate of a code stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CodeSpace {
    /// `|q - x|^2`, also for cosine on normalised vectors.
    L2,
    /// `-<q, x>`.
    Ip,
}

impl CodeSpace {
    /// The factor kappa of the residual product `<r, q - c>` in the estimate: 2 for L2, 1 for Ip.
    pub(crate) const fn kappa(self) -> f64 {
        match self {
            CodeSpace::L2 => 2.0,
            CodeSpace::Ip => 1.0,
        }
    }
}
