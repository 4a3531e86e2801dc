//! Errors of this crate.

use crate::Simd;

/// A kernel set was asked for that does not exist or cannot run on this CPU.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnsupportedSimd {
    /// The name is none of `scalar`, `avx2`, `avx512`, `neon`.
    #[error("unknown kernel set {0:?}: use scalar, avx2, avx512 or neon")]
    Unknown(String),
    /// This CPU, or this build, lacks the instructions.
    #[error("kernel set {simd} cannot run here: {missing} is missing")]
    Missing {
        /// The set asked for.
        simd: Simd,
        /// The first instruction set extension that was not found.
        missing: &'static str,
    },
    /// The set does not give the bits of the scalar kernels on this machine.
    #[error("kernel set {simd} computes wrong results on this machine: use another one and report it")]
    Wrong {
        /// The set asked for.
        simd: Simd,
    },
}
