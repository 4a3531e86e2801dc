//! Quantising a query and building its look-up tables.

use std::arch::x86_64::*;

use super::load;
use crate::scalar::ROUND;
use crate::table::ByteSums;

#[target_feature(enable = "avx2,fma")]
pub(super) fn max_abs(x: &[f32]) -> f32 {
    let minus = _mm256_set1_ps(-0.0);
    let mut m = [_mm256_setzero_ps(); 2];
    for x in x.as_chunks::<16>().0 {
        for k in 0..2 {
            m[k] = _mm256_max_ps(_mm256_andnot_ps(minus, load(x, k)), m[k]);
        }
    }
    let mut lanes = [0.0f32; 8];
    super::store(&mut lanes, 0, _mm256_max_ps(m[0], m[1]));
    lanes.into_iter().fold(0.0, f32::max)
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn quantise(x: &[f32], [scale, offset, low, high]: [f32; 4], out: &mut [u8]) {
    let (scale, offset) = (_mm256_set1_ps(scale), _mm256_set1_ps(offset));
    let (low, high) = (_mm256_set1_ps(low), _mm256_set1_ps(high));
    let (round, byte) = (_mm256_set1_ps(ROUND), _mm256_set1_epi32(0xFF));
    let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    for (x, out) in x.as_chunks::<32>().0.iter().zip(out.as_chunks_mut::<32>().0) {
        let mut v = [_mm256_setzero_si256(); 4];
        for k in 0..4 {
            // Not fused, as in the scalar code.
            let x = _mm256_add_ps(_mm256_mul_ps(load(x, k), scale), offset);
            let x = _mm256_min_ps(_mm256_max_ps(x, low), high);
            v[k] = _mm256_and_si256(_mm256_castps_si256(_mm256_add_ps(x, round)), byte);
        }
        // Packing works inside 128-bit halves; the permutation puts the bytes in order again.
        let bytes = _mm256_packus_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
        // SAFETY: out has 32 bytes; the store is unaligned.
        unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), _mm256_permutevar8x32_epi32(bytes, order)) }
    }
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn byte_sums(u: &[u8], max: u8) -> ByteSums {
    let (max, zero) = (_mm256_set1_epi8(max as i8), _mm256_setzero_si256());
    let (mut sum, mut least, mut widest) = (zero, zero, zero);
    for u in u.as_chunks::<32>().0 {
        let u = super::load_bytes(u);
        let rest = _mm256_sub_epi8(max, u);
        sum = _mm256_add_epi64(sum, _mm256_sad_epu8(u, zero));
        least = _mm256_add_epi64(least, _mm256_sad_epu8(_mm256_min_epu8(u, rest), zero));
        // Sums over 8 bytes, one byte column of the codes.
        widest = _mm256_max_epi32(widest, _mm256_sad_epu8(u, rest));
    }
    let of = |v: __m256i| {
        let mut lanes = [0u64; 4];
        // SAFETY: lanes has 32 bytes; the store is unaligned.
        unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), v) }
        lanes.map(|v| v as u32)
    };
    let widest = of(widest).into_iter().fold(0, u32::max);
    ByteSums { sum: of(sum).iter().sum(), least: of(least).iter().sum(), widest }
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn byte_tables(u: &[u8], max: u8, lut: &mut [u8]) {
    let max = _mm256_set1_epi8(max as i8);
    // Byte e of MASK[k] is set if bit k of e is.
    let masks = [
        _mm256_set1_epi64x(0xFF00_FF00_FF00_FF00u64 as i64),
        _mm256_set1_epi64x(0xFFFF_0000_FFFF_0000u64 as i64),
        _mm256_set1_epi64x(0xFFFF_FFFF_0000_0000u64 as i64),
        _mm256_setr_epi64x(0, -1, 0, -1),
    ];
    // Value k of the first four in the low half, of the second four in the high half.
    let half = _mm256_setr_epi64x(0, 0, 0x0404_0404_0404_0404, 0x0404_0404_0404_0404);
    for (tables, u) in lut.as_chunks_mut::<32>().0.iter_mut().zip(u.as_chunks::<8>().0) {
        let u = _mm256_set1_epi64x(i64::from_le_bytes(*u));
        let mut sum = _mm256_setzero_si256();
        for k in 0..4 {
            let value = _mm256_shuffle_epi8(u, _mm256_add_epi8(half, _mm256_set1_epi8(k as i8)));
            let rest = _mm256_sub_epi8(max, value);
            let (set, clear) = (_mm256_subs_epu8(value, rest), _mm256_subs_epu8(rest, value));
            sum = _mm256_add_epi8(sum, _mm256_blendv_epi8(clear, set, masks[k]));
        }
        // SAFETY: tables has 32 bytes; the store is unaligned.
        unsafe { _mm256_storeu_si256(tables.as_mut_ptr().cast(), sum) }
    }
}
