//! Scan of packed 1-bit codes: as AVX2, but a register holds two byte columns of 32 rows.

use std::arch::x86_64::*;

use super::{load, load_bytes};
use crate::packed::BLOCK_ROWS;
use crate::prefetch;
use crate::query::{ScanQuery, Survivor};
use crate::table::EstimateArgs;

/// Pairs of byte columns between spills to 32 bits: 4 look-ups of at most 255 each a pair, 64 * 1020 < 2^16.
const SPILL: usize = 64;

/// The sums of a block: rows 0..16 and 16..32 as 32-bit lanes.
type Sums = [__m512i; 2];

/// Sums in 16-bit lanes over bytes: .0 gathers even byte + 256 * odd byte modulo 2^16, .1 the odd bytes.
#[inline]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn add_columns<const NARROW: bool>(
    sum: (__m512i, __m512i),
    lut: (__m512i, __m512i),
    columns: &[u8; 64],
) -> (__m512i, __m512i) {
    let mask = _mm512_set1_epi8(15);
    let v = load_bytes(columns);
    let a = _mm512_shuffle_epi8(lut.0, _mm512_and_si512(v, mask));
    let b = _mm512_shuffle_epi8(lut.1, _mm512_and_si512(_mm512_srli_epi16::<4>(v), mask));
    if NARROW {
        // Both entries together fit a byte.
        let v = _mm512_add_epi8(a, b);
        return (_mm512_add_epi16(sum.0, v), _mm512_add_epi16(sum.1, _mm512_srli_epi16::<8>(v)));
    }
    let all = _mm512_add_epi16(_mm512_add_epi16(sum.0, a), b);
    let odd = _mm512_add_epi16(_mm512_add_epi16(sum.1, _mm512_srli_epi16::<8>(a)), _mm512_srli_epi16::<8>(b));
    (all, odd)
}

/// Adds the two columns of the register and gives the sums to the rows.
#[inline]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn spill(sums: &mut Sums, (all, odd): (__m512i, __m512i)) {
    let all = _mm256_add_epi16(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64::<1>(all));
    let odd = _mm256_add_epi16(_mm512_castsi512_si256(odd), _mm512_extracti64x4_epi64::<1>(odd));
    let even = _mm256_sub_epi16(all, _mm256_slli_epi16::<8>(odd));
    let (first, second) = (_mm256_unpacklo_epi16(even, odd), _mm256_unpackhi_epi16(even, odd));
    let rows = _mm512_cvtepu16_epi32(_mm256_permute2x128_si256::<0x20>(first, second));
    sums[0] = _mm512_add_epi32(sums[0], rows);
    let rows = _mm512_cvtepu16_epi32(_mm256_permute2x128_si256::<0x31>(first, second));
    sums[1] = _mm512_add_epi32(sums[1], rows);
}

/// Table sums of one or two blocks, which share the tables. `AHEAD`: the line at the same place in what will be scanned next,
/// from `ahead` on, is asked for with each line that is read.
#[inline]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn table_sums<const NARROW: bool, const AHEAD: bool, const N: usize>(
    lut: &[[u8; 64]],
    blocks: [&[[u8; 64]]; N],
    ahead: *const u8,
) -> [Sums; N] {
    let zero = _mm512_setzero_si512();
    let mut sums = [[zero; 2]; N];
    let len = blocks.iter().fold(lut.len(), |len, b| len.min(b.len()));
    let mut line = ahead;
    let mut start = 0;
    while start < len {
        let end = (start + SPILL).min(len);
        let mut partial = [(zero, zero); N];
        for i in start..end {
            // Tables 0..4 are low and high of the first column, low and high of the second.
            // SAFETY: i < len, which no table and no block is shorter than.
            let t = load_bytes(unsafe { lut.get_unchecked(i) });
            let lut =
                (_mm512_shuffle_i32x4::<0b10_10_00_00>(t, t), _mm512_shuffle_i32x4::<0b11_11_01_01>(t, t));
            for j in 0..N {
                if AHEAD {
                    prefetch::line(line);
                    line = line.wrapping_add(64);
                }
                // SAFETY: as above.
                let columns = unsafe { blocks[j].get_unchecked(i) };
                partial[j] = add_columns::<NARROW>(partial[j], lut, columns);
            }
        }
        for j in 0..N {
            spill(&mut sums[j], partial[j]);
        }
        start = end;
    }
    sums
}

/// `A` of the rows of one or two blocks. `HIGH`: the tables have high bytes (8 planes); `NARROW`: see [`ScanQuery`].
#[inline]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn block_sums<const HIGH: bool, const NARROW: bool, const AHEAD: bool, const N: usize>(
    q: &ScanQuery,
    blocks: [&[[u8; 64]]; N],
    ahead: *const u8,
) -> [Sums; N] {
    let mut sums = table_sums::<NARROW, AHEAD, N>(q.lut.as_chunks::<64>().0, blocks, ahead);
    if HIGH {
        let high = table_sums::<false, false, N>(q.lut_high.as_chunks::<64>().0, blocks, ahead);
        for (sums, high) in sums.iter_mut().zip(high) {
            for k in 0..2 {
                sums[k] = _mm512_add_epi32(sums[k], _mm512_slli_epi32::<8>(high[k]));
            }
        }
    }
    let least = _mm512_set1_epi32(q.least as i32);
    for sums in &mut sums {
        for k in 0..2 {
            sums[k] = _mm512_add_epi32(sums[k], least);
        }
    }
    sums
}

/// [`block_sums`] for this query.
#[inline]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn query_sums(q: &ScanQuery, block: &[[u8; 64]]) -> Sums {
    let nothing = std::ptr::null();
    let [sums] = match (q.lut_high.is_empty(), q.narrow) {
        (false, _) => block_sums::<true, false, false, 1>(q, [block], nothing),
        (true, false) => block_sums::<false, false, false, 1>(q, [block], nothing),
        (true, true) => block_sums::<false, true, false, 1>(q, [block], nothing),
    };
    sums
}

#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(super) fn scan(q: &ScanQuery, packed: &[u8], out: &mut [u32]) {
    let blocks = packed.as_chunks::<64>().0.chunks_exact(q.padded / 16);
    for (block, out) in blocks.zip(out.chunks_mut(BLOCK_ROWS)) {
        for (sum, out) in query_sums(q, block).iter().zip(out.chunks_mut(16)) {
            out.copy_from_slice(&stored(*sum)[..out.len()]);
        }
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn stored(v: __m512i) -> [u32; 16] {
    let mut out = [0u32; 16];
    // SAFETY: out has 64 bytes; the store is unaligned.
    unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), v) }
    out
}

#[inline]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn stored_floats(v: __m512) -> [f32; 16] {
    let mut out = [0.0f32; 16];
    // SAFETY: out has 16 values; the store is unaligned.
    unsafe { _mm512_storeu_ps(out.as_mut_ptr(), v) }
    out
}

/// The factors of one block.
#[derive(Clone, Copy)]
struct Factors<'a> {
    f_add: &'a [f32; BLOCK_ROWS],
    f_rescale: &'a [f32; BLOCK_ROWS],
    norm: &'a [f32; BLOCK_ROWS],
}

/// The terms of the estimate in registers.
struct Terms {
    bias: __m512i,
    quarter: __m512,
    g_add: __m512,
    g_abs: __m512,
    base: __m512,
    alpha: __m512,
    beta: __m512,
    scale: __m512,
    inverse: __m512,
    slack: __m512,
}

impl Terms {
    #[inline]
    #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    fn new(a: &EstimateArgs<'_>) -> Terms {
        let t = &a.terms;
        Terms {
            bias: _mm512_set1_epi32(a.query.bias),
            quarter: _mm512_set1_ps(a.query.quarter_step),
            g_add: _mm512_set1_ps(t.g_add),
            g_abs: _mm512_set1_ps(t.g_abs),
            base: _mm512_set1_ps(t.g_add - a.threshold),
            alpha: _mm512_set1_ps(t.alpha),
            beta: _mm512_set1_ps(t.beta),
            scale: _mm512_set1_ps(t.scale),
            inverse: _mm512_set1_ps(t.inverse),
            slack: _mm512_set1_ps(t.slack),
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    fn product(&self, sum: __m512i) -> __m512 {
        let twice = _mm512_sub_epi32(_mm512_add_epi32(sum, sum), self.bias);
        _mm512_mul_ps(_mm512_cvtepi32_ps(twice), self.quarter)
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    fn sizes(&self, f_add: __m512) -> __m512 {
        _mm512_add_ps(_mm512_abs_ps(f_add), self.g_abs)
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    fn e2(&self, f_rescale: __m512, norm: __m512) -> __m512 {
        let (x, y) = (_mm512_mul_ps(f_rescale, self.alpha), _mm512_mul_ps(norm, self.beta));
        _mm512_fmsub_ps(x, x, _mm512_mul_ps(y, y))
    }

    /// The rows of group `k` (16 rows) that are kept, as bits.
    #[inline]
    #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    fn kept(&self, f: Factors<'_>, k: usize, sum: __m512i) -> u32 {
        let (f_add, f_rescale) = (load(f.f_add, k), load(f.f_rescale, k));
        let e2 = self.e2(f_rescale, load(f.norm, k));
        let d = _mm512_fmadd_ps(f_rescale, self.product(sum), _mm512_add_ps(f_add, self.base));
        let n = _mm512_mul_ps(_mm512_fnmadd_ps(self.slack, self.sizes(f_add), d), self.inverse);
        let positive = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(n, _mm512_setzero_ps());
        let dropped = _mm512_mask_cmp_ps_mask::<_CMP_GT_OQ>(positive, _mm512_mul_ps(n, n), e2);
        u32::from(!dropped)
    }

    /// Estimates and lower bounds of group `k`.
    #[inline]
    #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    fn bounds(&self, f: Factors<'_>, k: usize, sum: __m512i) -> (__m512, __m512) {
        let (f_add, f_rescale) = (load(f.f_add, k), load(f.f_rescale, k));
        let est = _mm512_fmadd_ps(f_rescale, self.product(sum), _mm512_add_ps(f_add, self.g_add));
        // max returns its second operand for a NaN.
        let e2 = _mm512_max_ps(self.e2(f_rescale, load(f.norm, k)), _mm512_setzero_ps());
        let e = _mm512_mul_ps(self.scale, _mm512_sqrt_ps(e2));
        (est, _mm512_fnmadd_ps(self.slack, self.sizes(f_add), _mm512_sub_ps(est, e)))
    }
}

#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(super) fn estimates(a: &EstimateArgs<'_>, out: &mut Vec<Survivor>) {
    match (a.query.lut_high.is_empty(), a.query.narrow, a.ahead.is_empty()) {
        (false, _, _) => estimate_blocks::<true, false, false>(a, out),
        (true, false, _) => estimate_blocks::<false, false, true>(a, out),
        (true, true, false) => estimate_blocks::<false, true, true>(a, out),
        (true, true, true) => estimate_blocks::<false, true, false>(a, out),
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn estimate_blocks<const HIGH: bool, const NARROW: bool, const AHEAD: bool>(
    a: &EstimateArgs<'_>,
    out: &mut Vec<Survivor>,
) {
    let terms = Terms::new(a);
    let (columns, len) = (a.packed.as_chunks::<64>().0, a.query.padded / 16);
    let all = [a.columns.f_add, a.columns.f_rescale, a.columns.norm];
    let n = a.columns.f_add.len();
    let blocks = n.div_ceil(BLOCK_ROWS);
    for first in (0..blocks).step_by(2) {
        let block = |b: usize| &columns[b * len..(b + 1) * len];
        // Beyond the end of `ahead` something else is asked for: a prefetch may name any address.
        let ahead = a.ahead.as_ptr().wrapping_add(first * len * 64);
        let sums = if first + 1 < blocks {
            block_sums::<HIGH, NARROW, AHEAD, 2>(a.query, [block(first), block(first + 1)], ahead)
        } else {
            // The second is not used.
            let [sums] = block_sums::<HIGH, NARROW, AHEAD, 1>(a.query, [block(first)], ahead);
            [sums; 2]
        };
        for (b, sums) in (first..blocks).zip(sums) {
            let whole = all.map(|c| c[b * BLOCK_ROWS..].first_chunk::<BLOCK_ROWS>());
            // The last rows: columns filled up with zeros, the surplus masked.
            let mut last = [[0.0f32; BLOCK_ROWS]; 3];
            let (factors, allowed) = if let [Some(f_add), Some(f_rescale), Some(norm)] = whole {
                (Factors { f_add, f_rescale, norm }, u32::MAX)
            } else {
                let rest = n - b * BLOCK_ROWS;
                for (last, column) in last.iter_mut().zip(all) {
                    last[..rest].copy_from_slice(&column[b * BLOCK_ROWS..]);
                }
                (Factors { f_add: &last[0], f_rescale: &last[1], norm: &last[2] }, (1 << rest) - 1)
            };
            append(&terms, factors, allowed, b, sums, out);
        }
    }
}

/// Appends the rows of block `b` that are kept and allowed.
#[inline]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn append(terms: &Terms, f: Factors<'_>, allowed: u32, b: usize, sums: Sums, out: &mut Vec<Survivor>) {
    let kept = (terms.kept(f, 0, sums[0]) | terms.kept(f, 1, sums[1]) << 16) & allowed;
    if kept == 0 {
        return;
    }
    for k in 0..2 {
        let mut group = kept >> (16 * k) & 0xFFFF;
        if group == 0 {
            continue;
        }
        let (est, lower) = terms.bounds(f, k, sums[k]);
        let (sum_of, est_of, lower_of) = (stored(sums[k]), stored_floats(est), stored_floats(lower));
        while group != 0 {
            let i = group.trailing_zeros() as usize;
            group &= group - 1;
            let index = (b * BLOCK_ROWS + k * 16 + i) as u32;
            out.push(Survivor { index, sum: sum_of[i], est: est_of[i], lower: lower_of[i] });
        }
    }
}
