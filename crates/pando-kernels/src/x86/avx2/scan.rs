//! Scan of packed 1-bit codes by table look-ups (pshufb), 32 rows at a time, and its f32 epilogue.

use std::arch::x86_64::*;

use super::load_bytes;
use crate::packed::BLOCK_ROWS;
use crate::prefetch;
use crate::query::{ScanQuery, Survivor};
use crate::table::EstimateArgs;

/// Byte columns between spills to 32 bits: 2 look-ups of at most 255 each a column, 128 * 510 < 2^16.
const SPILL: usize = 128;

/// The sums of a block: rows 0..8, 8..16, 16..24, 24..32 as 32-bit lanes.
type Sums = [__m256i; 4];

/// The two tables of a byte column, each in both 128-bit halves.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn tables(lut: &[u8; 32]) -> (__m256i, __m256i) {
    // SAFETY: two unaligned loads of 16 of 32 bytes.
    unsafe {
        let (low, high) =
            (_mm_loadu_si128(lut.as_ptr().cast()), _mm_loadu_si128(lut.as_ptr().add(16).cast()));
        (_mm256_broadcastsi128_si256(low), _mm256_broadcastsi128_si256(high))
    }
}

/// Sums in 16-bit lanes over bytes: .0 gathers even byte + 256 * odd byte modulo 2^16, .1 the odd bytes.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn add_column<const NARROW: bool>(
    sum: (__m256i, __m256i),
    lut: (__m256i, __m256i),
    column: &[u8; 32],
) -> (__m256i, __m256i) {
    let mask = _mm256_set1_epi8(15);
    let v = load_bytes(column);
    let a = _mm256_shuffle_epi8(lut.0, _mm256_and_si256(v, mask));
    let b = _mm256_shuffle_epi8(lut.1, _mm256_and_si256(_mm256_srli_epi16::<4>(v), mask));
    if NARROW {
        // Both entries together fit a byte.
        let v = _mm256_add_epi8(a, b);
        return (_mm256_add_epi16(sum.0, v), _mm256_add_epi16(sum.1, _mm256_srli_epi16::<8>(v)));
    }
    let all = _mm256_add_epi16(_mm256_add_epi16(sum.0, a), b);
    let odd = _mm256_add_epi16(_mm256_add_epi16(sum.1, _mm256_srli_epi16::<8>(a)), _mm256_srli_epi16::<8>(b));
    (all, odd)
}

/// Adds the 16-bit sums to the rows.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn spill(sums: &mut Sums, (all, odd): (__m256i, __m256i)) {
    let even = _mm256_sub_epi16(all, _mm256_slli_epi16::<8>(odd));
    let (first, second) = (_mm256_unpacklo_epi16(even, odd), _mm256_unpackhi_epi16(even, odd));
    let rows = [
        _mm256_castsi256_si128(first),
        _mm256_castsi256_si128(second),
        _mm256_extracti128_si256::<1>(first),
        _mm256_extracti128_si256::<1>(second),
    ];
    for k in 0..4 {
        sums[k] = _mm256_add_epi32(sums[k], _mm256_cvtepu16_epi32(rows[k]));
    }
}

/// Where the lines lie that are asked for while a block or two are scanned: one for each byte column.
#[derive(Clone, Copy)]
struct Ahead {
    start: *const u8,
    step: usize,
}

impl Ahead {
    /// The part of `bytes` at the place of `blocks`, if it reaches that far; else nothing new.
    #[inline]
    fn new(bytes: &[u8], at: usize, columns: &[[u8; 32]]) -> Ahead {
        match bytes.get(at..at + 64 * columns.len()) {
            Some(bytes) => Ahead { start: bytes.as_ptr(), step: 64 },
            None => Ahead { start: columns.as_ptr().cast(), step: 0 },
        }
    }
}

/// Table sums of one or two blocks, which share the tables' loads.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn table_sums<const NARROW: bool, const N: usize>(
    lut: &[[u8; 32]],
    blocks: [&[[u8; 32]]; N],
    ahead: Ahead,
) -> [Sums; N] {
    let zero = _mm256_setzero_si256();
    let mut sums = [[zero; 4]; N];
    let len = blocks.iter().fold(lut.len(), |len, b| len.min(b.len()));
    let (lut, blocks) = (&lut[..len], blocks.map(|b| &b[..len]));
    let mut line = ahead.start;
    let mut start = 0;
    while start < len {
        let end = (start + SPILL).min(len);
        let mut partial = [(zero, zero); N];
        for i in start..end {
            prefetch::line(line);
            line = line.wrapping_add(ahead.step);
            let lut = tables(&lut[i]);
            for j in 0..N {
                partial[j] = add_column::<NARROW>(partial[j], lut, &blocks[j][i]);
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
#[target_feature(enable = "avx2,fma")]
fn block_sums<const HIGH: bool, const NARROW: bool, const N: usize>(
    q: &ScanQuery,
    blocks: [&[[u8; 32]]; N],
    ahead: Ahead,
) -> [Sums; N] {
    let mut sums = table_sums::<NARROW, N>(q.lut.as_chunks::<32>().0, blocks, ahead);
    if HIGH {
        let high = table_sums::<false, N>(q.lut_high.as_chunks::<32>().0, blocks, ahead);
        for (sums, high) in sums.iter_mut().zip(high) {
            for k in 0..4 {
                sums[k] = _mm256_add_epi32(sums[k], _mm256_slli_epi32::<8>(high[k]));
            }
        }
    }
    let least = _mm256_set1_epi32(q.least as i32);
    for sums in &mut sums {
        for k in 0..4 {
            sums[k] = _mm256_add_epi32(sums[k], least);
        }
    }
    sums
}

/// [`block_sums`] for this query.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn query_sums(q: &ScanQuery, block: &[[u8; 32]]) -> Sums {
    let nothing = Ahead { start: block.as_ptr().cast(), step: 0 };
    let [sums] = match (q.lut_high.is_empty(), q.narrow) {
        (false, _) => block_sums::<true, false, 1>(q, [block], nothing),
        (true, false) => block_sums::<false, false, 1>(q, [block], nothing),
        (true, true) => block_sums::<false, true, 1>(q, [block], nothing),
    };
    sums
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn scan(q: &ScanQuery, packed: &[u8], out: &mut [u32]) {
    let blocks = packed.as_chunks::<32>().0.chunks_exact(q.padded / 8);
    for (block, out) in blocks.zip(out.chunks_mut(BLOCK_ROWS)) {
        for (sum, out) in query_sums(q, block).iter().zip(out.chunks_mut(8)) {
            let mut rows = [0u32; 8];
            // SAFETY: rows has 8 values; the store is unaligned.
            unsafe { _mm256_storeu_si256(rows.as_mut_ptr().cast(), *sum) }
            out.copy_from_slice(&rows[..out.len()]);
        }
    }
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
    bias: __m256i,
    quarter: __m256,
    g_add: __m256,
    g_abs: __m256,
    base: __m256,
    alpha: __m256,
    beta: __m256,
    scale: __m256,
    inverse: __m256,
    slack: __m256,
}

impl Terms {
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn new(a: &EstimateArgs<'_>) -> Terms {
        let t = &a.terms;
        Terms {
            bias: _mm256_set1_epi32(a.query.bias),
            quarter: _mm256_set1_ps(a.query.quarter_step),
            g_add: _mm256_set1_ps(t.g_add),
            g_abs: _mm256_set1_ps(t.g_abs),
            base: _mm256_set1_ps(t.g_add - a.threshold),
            alpha: _mm256_set1_ps(t.alpha),
            beta: _mm256_set1_ps(t.beta),
            scale: _mm256_set1_ps(t.scale),
            inverse: _mm256_set1_ps(t.inverse),
            slack: _mm256_set1_ps(t.slack),
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn product(&self, sum: __m256i) -> __m256 {
        let twice = _mm256_sub_epi32(_mm256_add_epi32(sum, sum), self.bias);
        _mm256_mul_ps(_mm256_cvtepi32_ps(twice), self.quarter)
    }

    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn sizes(&self, f_add: __m256) -> __m256 {
        _mm256_add_ps(_mm256_andnot_ps(_mm256_set1_ps(-0.0), f_add), self.g_abs)
    }

    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn e2(&self, f_rescale: __m256, norm: __m256) -> __m256 {
        let (x, y) = (_mm256_mul_ps(f_rescale, self.alpha), _mm256_mul_ps(norm, self.beta));
        _mm256_fmsub_ps(x, x, _mm256_mul_ps(y, y))
    }

    /// The rows of group `k` (8 rows) that are kept, as bits.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn kept(&self, f: Factors<'_>, k: usize, sum: __m256i) -> u32 {
        let (f_add, f_rescale) = (super::load(f.f_add, k), super::load(f.f_rescale, k));
        let e2 = self.e2(f_rescale, super::load(f.norm, k));
        let d = _mm256_fmadd_ps(f_rescale, self.product(sum), _mm256_add_ps(f_add, self.base));
        let n = _mm256_mul_ps(_mm256_fnmadd_ps(self.slack, self.sizes(f_add), d), self.inverse);
        let far = _mm256_cmp_ps::<_CMP_GT_OQ>(_mm256_mul_ps(n, n), e2);
        let dropped = _mm256_and_ps(_mm256_cmp_ps::<_CMP_GT_OQ>(n, _mm256_setzero_ps()), far);
        !_mm256_movemask_ps(dropped) as u32 & 0xFF
    }

    /// Estimates and lower bounds of group `k`.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn bounds(&self, f: Factors<'_>, k: usize, sum: __m256i) -> (__m256, __m256) {
        let (f_add, f_rescale) = (super::load(f.f_add, k), super::load(f.f_rescale, k));
        let est = _mm256_fmadd_ps(f_rescale, self.product(sum), _mm256_add_ps(f_add, self.g_add));
        // max returns its second operand for a NaN.
        let e2 = _mm256_max_ps(self.e2(f_rescale, super::load(f.norm, k)), _mm256_setzero_ps());
        let e = _mm256_mul_ps(self.scale, _mm256_sqrt_ps(e2));
        (est, _mm256_fnmadd_ps(self.slack, self.sizes(f_add), _mm256_sub_ps(est, e)))
    }
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn estimates(a: &EstimateArgs<'_>, out: &mut Vec<Survivor>) {
    match (a.query.lut_high.is_empty(), a.query.narrow) {
        (false, _) => estimate_blocks::<true, false>(a, out),
        (true, false) => estimate_blocks::<false, false>(a, out),
        (true, true) => estimate_blocks::<false, true>(a, out),
    }
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn estimate_blocks<const HIGH: bool, const NARROW: bool>(a: &EstimateArgs<'_>, out: &mut Vec<Survivor>) {
    let terms = Terms::new(a);
    let (columns, len) = (a.packed.as_chunks::<32>().0, a.query.padded / 8);
    let blocks = a.columns.f_add.len().div_ceil(BLOCK_ROWS);
    let mut b = 0;
    while b + 2 <= blocks {
        let two = [&columns[b * len..(b + 1) * len], &columns[(b + 1) * len..(b + 2) * len]];
        let ahead = Ahead::new(a.ahead, b * len * 32, two[0]);
        let [first, second] = block_sums::<HIGH, NARROW, 2>(a.query, two, ahead);
        estimate_block(&terms, a, b, first, out);
        estimate_block(&terms, a, b + 1, second, out);
        b += 2;
    }
    if b < blocks {
        let one = &columns[b * len..(b + 1) * len];
        let [sums] = block_sums::<HIGH, NARROW, 1>(a.query, [one], Ahead::new(a.ahead, b * len * 32, one));
        estimate_block(&terms, a, b, sums, out);
    }
}

/// Appends the survivors of block `b`.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn estimate_block(terms: &Terms, a: &EstimateArgs<'_>, b: usize, sums: Sums, out: &mut Vec<Survivor>) {
    let all = [a.columns.f_add, a.columns.f_rescale, a.columns.norm];
    let whole = all.map(|c| c[b * BLOCK_ROWS..].first_chunk::<BLOCK_ROWS>());
    if let [Some(f_add), Some(f_rescale), Some(norm)] = whole {
        append(terms, Factors { f_add, f_rescale, norm }, u32::MAX, b, sums, out);
        return;
    }
    // The last rows: columns filled up with zeros, the surplus masked.
    let rest = a.columns.f_add.len() - b * BLOCK_ROWS;
    let mut f = [[0.0f32; BLOCK_ROWS]; 3];
    for (f, column) in f.iter_mut().zip(all) {
        f[..rest].copy_from_slice(&column[b * BLOCK_ROWS..]);
    }
    let factors = Factors { f_add: &f[0], f_rescale: &f[1], norm: &f[2] };
    append(terms, factors, (1 << rest) - 1, b, sums, out);
}

/// Appends the rows of block `b` that are kept and allowed.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn append(terms: &Terms, f: Factors<'_>, allowed: u32, b: usize, sums: Sums, out: &mut Vec<Survivor>) {
    let mut kept = 0;
    for k in 0..4 {
        kept |= terms.kept(f, k, sums[k]) << (8 * k);
    }
    kept &= allowed;
    if kept == 0 {
        return;
    }
    for k in 0..4 {
        let mut group = kept >> (8 * k) & 0xFF;
        if group == 0 {
            continue;
        }
        let (est, lower) = terms.bounds(f, k, sums[k]);
        let (mut sum_of, mut est_of, mut lower_of) = ([0u32; 8], [0.0f32; 8], [0.0f32; 8]);
        super::store(&mut est_of, 0, est);
        super::store(&mut lower_of, 0, lower);
        // SAFETY: the array has 8 values; the store is unaligned.
        unsafe { _mm256_storeu_si256(sum_of.as_mut_ptr().cast(), sums[k]) }
        while group != 0 {
            let i = group.trailing_zeros() as usize;
            group &= group - 1;
            let index = (b * BLOCK_ROWS + k * 8 + i) as u32;
            out.push(Survivor { index, sum: sum_of[i], est: est_of[i], lower: lower_of[i] });
        }
    }
}
