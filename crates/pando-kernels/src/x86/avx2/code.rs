//! Encoding sums in 32 lanes: 4 registers a sum.

use std::arch::x86_64::*;

use super::{fold8, load};
use crate::table::{BitSums, RaySums};

/// 32 -> 16 -> 8 between registers, then inside the last one.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn fold(a: [__m256; 4]) -> f32 {
    fold8(_mm256_add_ps(_mm256_add_ps(a[0], a[2]), _mm256_add_ps(a[1], a[3])))
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn bits(r: &[f32], c: &[f32], code: &mut [u8]) -> BitSums {
    let zero = [_mm256_setzero_ps(); 4];
    let (mut norm2, mut abs, mut signed_c) = (zero, zero, zero);
    let minus = _mm256_set1_ps(-0.0);
    let rows = r.as_chunks::<32>().0.iter().zip(c.as_chunks::<32>().0);
    for ((r, c), code) in rows.zip(code.as_chunks_mut::<4>().0) {
        for k in 0..4 {
            let x = load(r, k);
            code[k] = !_mm256_movemask_ps(x) as u8;
            norm2[k] = _mm256_fmadd_ps(x, x, norm2[k]);
            abs[k] = _mm256_add_ps(abs[k], _mm256_andnot_ps(minus, x));
            let signed = _mm256_xor_ps(load(c, k), _mm256_and_ps(minus, x));
            signed_c[k] = _mm256_add_ps(signed_c[k], signed);
        }
    }
    BitSums { norm2: fold(norm2), abs: fold(abs), signed_c: fold(signed_c) }
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn ray(x: &[f32], t: f32, top: f32) -> RaySums {
    let (mut num, mut den) = ([_mm256_setzero_ps(); 4], [_mm256_setzero_ps(); 2]);
    let (t, top, one) = (_mm256_set1_ps(t), _mm256_set1_ps(top), _mm256_set1_ps(1.0));
    let minus = _mm256_set1_ps(-0.0);
    for x in x.as_chunks::<32>().0 {
        for k in 0..4 {
            let a = _mm256_andnot_ps(minus, load(x, k));
            let m = _mm256_floor_ps(_mm256_min_ps(_mm256_mul_ps(t, a), top));
            let o = _mm256_add_ps(_mm256_add_ps(m, m), one);
            num[k] = _mm256_fmadd_ps(a, o, num[k]);
            // Integers below 2^24: exact in any order.
            den[k % 2] = _mm256_fmadd_ps(o, o, den[k % 2]);
        }
    }
    RaySums { num: fold(num), den: fold8(_mm256_add_ps(den[0], den[1])), signed_c: 0.0 }
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn ray_encode(x: &[f32], c: &[f32], t: f32, top: f32, bias: u8, nibbles: &mut [u8]) -> RaySums {
    let zero = [_mm256_setzero_ps(); 4];
    let (mut num, mut signed_c, mut den) = (zero, zero, _mm256_setzero_ps());
    let (t, top, one) = (_mm256_set1_ps(t), _mm256_set1_ps(top), _mm256_set1_ps(1.0));
    let (minus, fifteen) = (_mm256_set1_ps(-0.0), _mm256_set1_epi32(15));
    let bias = _mm256_set1_epi32(i32::from(bias));
    let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    let blocks = x.as_chunks::<64>().0.iter().zip(c.as_chunks::<64>().0);
    for ((x, c), out) in blocks.zip(nibbles.as_chunks_mut::<32>().0) {
        let mut halves = [_mm256_setzero_si256(); 2];
        for (h, half) in halves.iter_mut().enumerate() {
            let mut e = [_mm256_setzero_si256(); 4];
            for k in 0..4 {
                let v = load(x, h * 4 + k);
                let a = _mm256_andnot_ps(minus, v);
                let m = _mm256_floor_ps(_mm256_min_ps(_mm256_mul_ps(t, a), top));
                let o = _mm256_add_ps(_mm256_add_ps(m, m), one);
                num[k] = _mm256_fmadd_ps(a, o, num[k]);
                den = _mm256_fmadd_ps(o, o, den);
                let signed = _mm256_xor_ps(o, _mm256_and_ps(minus, v));
                signed_c[k] = _mm256_fmadd_ps(signed, load(c, h * 4 + k), signed_c[k]);
                let negative = _mm256_and_si256(_mm256_srai_epi32::<31>(_mm256_castps_si256(v)), fifteen);
                e[k] = _mm256_xor_si256(_mm256_or_si256(_mm256_cvttps_epi32(m), bias), negative);
            }
            // Packing works inside 128-bit halves; the permutation puts the bytes in order again.
            let bytes = _mm256_packus_epi16(_mm256_packs_epi32(e[0], e[1]), _mm256_packs_epi32(e[2], e[3]));
            *half = _mm256_permutevar8x32_epi32(bytes, order);
        }
        let both = _mm256_or_si256(halves[0], _mm256_slli_epi16::<4>(halves[1]));
        // SAFETY: out has 32 bytes; the store is unaligned.
        unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), both) }
    }
    RaySums { num: fold(num), den: fold8(den), signed_c: fold(signed_c) }
}
