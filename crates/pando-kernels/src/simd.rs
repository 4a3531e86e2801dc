//! Names of kernel sets and the choice of one.

use std::fmt;
use std::str::FromStr;

use crate::error::UnsupportedSimd;
use crate::table::Table;

/// A kernel set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Simd {
    /// Plain Rust, runs everywhere; the definition of every result.
    Scalar,
    /// x86-64 with AVX2 and FMA.
    Avx2,
    /// x86-64 with AVX-512 F, BW, VL, DQ and VNNI.
    Avx512,
    /// aarch64. Not built yet: that machine uses the scalar set.
    Neon,
}

impl Simd {
    /// Every set, worst first.
    pub const ALL: [Simd; 4] = [Simd::Scalar, Simd::Neon, Simd::Avx2, Simd::Avx512];

    /// The name used by `PANDO_SIMD`.
    pub const fn name(self) -> &'static str {
        match self {
            Simd::Scalar => "scalar",
            Simd::Avx2 => "avx2",
            Simd::Avx512 => "avx512",
            Simd::Neon => "neon",
        }
    }

    /// The table of this set, or the first extension that is missing here.
    pub(crate) fn table(self) -> Result<&'static Table, UnsupportedSimd> {
        match self {
            Simd::Scalar => Ok(&crate::scalar::TABLE),
            #[cfg(target_arch = "x86_64")]
            Simd::Avx2 => crate::x86::avx2_table(),
            #[cfg(target_arch = "x86_64")]
            Simd::Avx512 => crate::x86::avx512_table(),
            #[cfg(not(target_arch = "x86_64"))]
            Simd::Avx2 | Simd::Avx512 => Err(UnsupportedSimd::Missing { simd: self, missing: "x86_64" }),
            Simd::Neon => Err(UnsupportedSimd::Missing { simd: self, missing: "NEON code in this build" }),
        }
    }
}

impl fmt::Display for Simd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Simd {
    type Err = UnsupportedSimd;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        Simd::ALL.into_iter().find(|x| x.name() == s).ok_or_else(|| UnsupportedSimd::Unknown(s.to_owned()))
    }
}
