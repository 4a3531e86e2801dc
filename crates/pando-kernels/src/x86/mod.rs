//! x86-64 kernel sets.

use crate::error::UnsupportedSimd;
use crate::simd::Simd;
use crate::table::Table;

/// The AVX2 table, if this CPU has AVX2 and FMA.
pub(crate) fn avx2_table() -> Result<&'static Table, UnsupportedSimd> {
    Err(UnsupportedSimd::Missing { simd: Simd::Avx2, missing: "avx2" })
}

/// The AVX-512 table, if this CPU has F, BW, VL, DQ and VNNI.
pub(crate) fn avx512_table() -> Result<&'static Table, UnsupportedSimd> {
    Err(UnsupportedSimd::Missing { simd: Simd::Avx512, missing: "avx512f" })
}
