//! x86-64 kernel sets.

mod avx2;

use crate::error::UnsupportedSimd;
use crate::simd::Simd;
use crate::table::Table;

/// The AVX2 table, if this CPU has AVX2 and FMA.
pub(crate) fn avx2_table() -> Result<&'static Table, UnsupportedSimd> {
    let missing = |missing| Err(UnsupportedSimd::Missing { simd: Simd::Avx2, missing });
    if !is_x86_feature_detected!("avx2") {
        missing("avx2")
    } else if !is_x86_feature_detected!("fma") {
        missing("fma")
    } else {
        Ok(&avx2::TABLE)
    }
}

/// The AVX-512 table, if this CPU has F, BW, VL, DQ and VNNI.
pub(crate) fn avx512_table() -> Result<&'static Table, UnsupportedSimd> {
    Err(UnsupportedSimd::Missing { simd: Simd::Avx512, missing: "avx512f" })
}
