//! Rotation pieces. Negating and adding stands for subtracting: the same value bit for bit.

use std::arch::x86_64::*;

use super::{load, store};

#[target_feature(enable = "avx2,fma")]
pub(super) fn flip(x: &mut [f32], masks: &[u32]) {
    for (x, m) in x.as_chunks_mut::<8>().0.iter_mut().zip(masks.as_chunks::<8>().0) {
        // SAFETY: m has 8 values; the load is unaligned.
        let m = unsafe { _mm256_loadu_ps(m.as_ptr().cast()) };
        store(x, 0, _mm256_xor_ps(load(x, 0), m));
    }
}

/// Strides 1, 2 and 4 inside one register.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn inside(v: __m256) -> __m256 {
    let n = -0.0f32;
    let odd1 = _mm256_setr_ps(0.0, n, 0.0, n, 0.0, n, 0.0, n);
    let odd2 = _mm256_setr_ps(0.0, 0.0, n, n, 0.0, 0.0, n, n);
    let odd4 = _mm256_setr_ps(0.0, 0.0, 0.0, 0.0, n, n, n, n);
    let v = _mm256_add_ps(_mm256_permute_ps::<0xB1>(v), _mm256_xor_ps(v, odd1));
    let v = _mm256_add_ps(_mm256_permute_ps::<0x4E>(v), _mm256_xor_ps(v, odd2));
    _mm256_add_ps(_mm256_permute2f128_ps::<1>(v, v), _mm256_xor_ps(v, odd4))
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn butterfly(a: __m256, b: __m256) -> (__m256, __m256) {
    (_mm256_add_ps(a, b), _mm256_sub_ps(a, b))
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn fht(x: &mut [f32], scale: f32) {
    let n = x.len();
    let one = _mm256_set1_ps(1.0);
    let factor = _mm256_set1_ps(scale);
    // Strides 1 to 32 in registers, 64 values at a time.
    let s = if n == 64 { factor } else { one };
    for x in x.as_chunks_mut::<64>().0 {
        let mut r: [__m256; 8] = [one; 8];
        for k in 0..8 {
            r[k] = inside(load(x, k));
        }
        for h in [1, 2, 4] {
            for k in 0..8 {
                if k & h == 0 {
                    (r[k], r[k + h]) = butterfly(r[k], r[k + h]);
                }
            }
        }
        for k in 0..8 {
            store(x, k, _mm256_mul_ps(r[k], s));
        }
    }
    let mut h = 64;
    // One stride alone if their number is odd, then two at a time.
    if (n / h).ilog2() % 2 == 1 {
        let s = if n == 2 * h { factor } else { one };
        for pair in x.chunks_exact_mut(2 * h) {
            let (a, b) = pair.split_at_mut(h);
            for (a, b) in a.as_chunks_mut::<8>().0.iter_mut().zip(b.as_chunks_mut::<8>().0) {
                let (p, m) = butterfly(load(a, 0), load(b, 0));
                store(a, 0, _mm256_mul_ps(p, s));
                store(b, 0, _mm256_mul_ps(m, s));
            }
        }
        h *= 2;
    }
    while h < n {
        let s = if n == 4 * h { factor } else { one };
        for four in x.chunks_exact_mut(4 * h) {
            let (ab, cd) = four.split_at_mut(2 * h);
            let ((a, b), (c, d)) = (ab.split_at_mut(h), cd.split_at_mut(h));
            let a = a.as_chunks_mut::<8>().0.iter_mut().zip(b.as_chunks_mut::<8>().0);
            let c = c.as_chunks_mut::<8>().0.iter_mut().zip(d.as_chunks_mut::<8>().0);
            for ((a, b), (c, d)) in a.zip(c) {
                let (p, q) = butterfly(load(a, 0), load(b, 0));
                let (r, t) = butterfly(load(c, 0), load(d, 0));
                let ((p, r), (q, t)) = (butterfly(p, r), butterfly(q, t));
                store(a, 0, _mm256_mul_ps(p, s));
                store(b, 0, _mm256_mul_ps(q, s));
                store(c, 0, _mm256_mul_ps(r, s));
                store(d, 0, _mm256_mul_ps(t, s));
            }
        }
        h *= 4;
    }
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn kac(x: &mut [f32], scale: f32) {
    let half = x.len() / 2;
    let (a, b) = x.split_at_mut(half);
    let s = _mm256_set1_ps(scale);
    for (a, b) in a.as_chunks_mut::<8>().0.iter_mut().zip(b.as_chunks_mut::<8>().0) {
        let (p, m) = butterfly(load(a, 0), load(b, 0));
        store(a, 0, _mm256_mul_ps(p, s));
        store(b, 0, _mm256_mul_ps(m, s));
    }
}
