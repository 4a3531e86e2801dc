//! x86-64 kernel sets.

mod avx2;
mod avx512;

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
        Ok(const { &avx2::TABLE })
    }
}

/// The AVX-512 table, if this CPU has AVX2, FMA, and AVX-512 F, BW, VL, DQ and VNNI.
pub(crate) fn avx512_table() -> Result<&'static Table, UnsupportedSimd> {
    // Instructions borrowed from AVX2 come first: a set without them is not usable.
    avx2_table()?;
    let found = [
        ("avx512f", is_x86_feature_detected!("avx512f")),
        ("avx512bw", is_x86_feature_detected!("avx512bw")),
        ("avx512vl", is_x86_feature_detected!("avx512vl")),
        ("avx512dq", is_x86_feature_detected!("avx512dq")),
        ("avx512vnni", is_x86_feature_detected!("avx512vnni")),
    ];
    match found.into_iter().find(|(_, found)| !found) {
        Some((missing, _)) => Err(UnsupportedSimd::Missing { simd: Simd::Avx512, missing }),
        None => Ok(&avx512::TABLE),
    }
}
