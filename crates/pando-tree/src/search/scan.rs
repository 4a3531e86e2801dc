//! One wave: 1-bit scans of its leaves, then refinement of what survives.
//!
//! What a wave adds to the candidates is a function of the threshold before it and of the *set* of copies of codes in
//! it. Inside the wave the threshold is tightened as leaves are scanned, but only to bounds that the end of the wave
//! applies to all copies alike, so neither the order nor the place of a scan changes the outcome.

use pando_kernels::{
    BLOCK_ROWS, BitColumns, CodeSpace, Planes, RefineFactors, ScanQuery, ScanTerms, Survivor,
};

use super::candidates::{Candidate, CandidateSet, beyond, kth_smallest};
use super::frame::Frame;
use super::leaf::{LeafPart, RowMask};
use super::order::ordered;

/// Rows scanned with one threshold.
const CHUNK: usize = 128 * BLOCK_ROWS;
/// A norm column is rounded up by less than this.
const NORM_SLACK: f32 = 3.2e-5;
/// Copies of a row's code in one root.
const COPIES: usize = 2;

/// A query's side of the scans.
#[derive(Default)]
pub(crate) struct Scan {
    query: ScanQuery,
    prepared: Vec<f32>,
    centered: Vec<f32>,
    rotated: Vec<f32>,
    norm: f32,
    eps0: f32,
    sure: bool,
    k: usize,
    /// Rows beyond it are not among the first k.
    threshold: f32,
    slots: Vec<Slot>,
    pending: Vec<Pending>,
    /// Pending copies when the threshold was last tightened.
    tightened: usize,
    /// Norm of the centroid of the leaf started last (dot).
    reach: f32,
    /// No candidate's vector is longer (dot): for the rounding margin of exact distances.
    longest: f32,
    survivors: Vec<Survivor>,
    scratch: Vec<u32>,
    pub(crate) codes: u64,
    pub(crate) refined: u64,
}

/// A leaf of the wave.
struct Slot {
    terms: ScanTerms,
    rank: u32,
    sure: SureTerms,
}

/// A copy of a code that survived its scan.
#[derive(Clone, Copy)]
struct Pending {
    row: u64,
    est: f32,
    lower: f32,
    upper: f32,
    sum: u32,
    slot: u32,
    part: u32,
    index: u32,
}

/// The sure bound of a leaf's rows from the norms of their residuals, rounded outwards.
#[derive(Clone, Copy)]
enum SureTerms {
    /// Smallest and largest value of `|q - c|`, and the rounding of a square.
    L2 { low: f32, high: f32, slack: f32 },
    /// Smallest and largest value of `-<q, c>`, largest norm of the query, and the rounding of their sum.
    Ip { low: f32, high: f32, norm: f32, slack: f32 },
}

impl SureTerms {
    fn bounds(&self, norm: f32) -> (f32, f32) {
        match *self {
            SureTerms::L2 { low, high, slack } => {
                let near = (low - norm).max(norm * (1.0 - NORM_SLACK) - high).max(0.0);
                let far = high + norm;
                (near * near * (1.0 - slack), far * far * (1.0 + slack))
            }
            SureTerms::Ip { low, high, norm: q, slack } => {
                let reach = q * norm * (1.0 + slack);
                let rounding = (low.abs() + high.abs() + reach) * slack;
                (low - reach - rounding, high + reach + rounding)
            }
        }
    }
}

impl Scan {
    /// `query` is an original vector. `sure`: bounds never fail, instead of eps0 standard errors.
    pub(crate) fn begin(&mut self, frame: &Frame, query: &[f32], k: usize, eps0: f32, sure: bool) {
        self.prepared.resize(frame.dim(), 0.0);
        frame.prepare(query, &mut self.prepared);
        self.centered.clear();
        self.centered.extend(self.prepared.iter().zip(frame.mean()).map(|(x, mean)| x - mean));
        self.rotated.resize(frame.padded(), 0.0);
        frame.rotation().apply(frame.kernels(), &self.centered, &mut self.rotated);
        self.query.prepare(&self.rotated, Planes::P6);
        self.norm = frame.kernels().norm2(&self.prepared).sqrt();
        (self.k, self.eps0, self.sure) = (k, eps0, sure);
        self.threshold = f32::INFINITY;
        self.longest = 0.0;
        self.tightened = 0;
        (self.codes, self.refined) = (0, 0);
        self.pending.clear();
        self.slots.clear();
    }

    /// P(query - mean).
    pub(crate) fn rotated(&self) -> &[f32] {
        &self.rotated
    }

    /// The query, prepared.
    pub(crate) fn prepared(&self) -> &[f32] {
        &self.prepared
    }

    /// Norm of the prepared query.
    pub(crate) fn norm(&self) -> f32 {
        self.norm
    }

    /// Lowers the threshold to a bound found otherwise.
    pub(crate) fn lower_threshold(&mut self, bound: f32) {
        self.threshold = self.threshold.min(bound);
    }

    /// Bound of the norms of all rows that survived a scan so far (dot).
    pub(crate) fn longest(&self) -> f32 {
        self.longest
    }

    /// Starts the next leaf of the wave.
    pub(crate) fn leaf(&mut self, frame: &Frame, centroid: &[f32], rank: u32) {
        let kernels = frame.kernels();
        let rule = frame.rounding();
        let rounding = rule.relative;
        let g2 = kernels.l2(&self.prepared, centroid);
        let g = g2.sqrt();
        let (g_add, sure) = match frame.space() {
            CodeSpace::L2 => {
                let (low, high) = (g * (1.0 - rounding) - rule.length, g * (1.0 + rounding) + rule.length);
                (g2, SureTerms::L2 { low, high, slack: rounding })
            }
            CodeSpace::Ip => {
                let (dot, norm2) = kernels.dot_norm2(&self.prepared, centroid);
                self.reach = norm2.sqrt() * (1.0 + rounding);
                let off = rounding * self.norm * self.reach;
                let norm = self.norm * (1.0 + rounding);
                (-dot, SureTerms::Ip { low: -dot - off, high: -dot + off, norm, slack: rounding })
            }
        };
        let terms = ScanTerms::new(frame.space(), &self.query, self.eps0, g_add, g);
        self.slots.push(Slot { terms, rank, sure });
    }

    /// Scans a part of the leaf started last.
    pub(crate) fn part<M: RowMask + ?Sized>(
        &mut self,
        frame: &Frame,
        candidates: &CandidateSet,
        number: usize,
        part: &LeafPart<'_>,
        mask: &M,
    ) {
        let Some(slot) = self.slots.last() else { return };
        let (terms, sure) = (slot.terms, slot.sure);
        let slot = self.slots.len() as u32 - 1;
        let unmasked = mask.is_empty();
        let ip = frame.space() == CodeSpace::Ip;
        let bytes = frame.padded() / 8;
        let n = part.rows.len();
        self.codes += n as u64;
        for start in (0..n).step_by(CHUNK) {
            let end = n.min(start + CHUNK);
            let columns = BitColumns {
                f_add: &part.f_add[start..end],
                f_rescale: &part.f_rescale[start..end],
                norm: &part.norm[start..end],
            };
            let packed = &part.packed[start * bytes..end.next_multiple_of(BLOCK_ROWS) * bytes];
            let limit = if self.sure { f32::INFINITY } else { self.threshold };
            self.survivors.clear();
            frame.kernels().scan_estimates(&self.query, packed, columns, &terms, limit, &mut self.survivors);
            for s in &self.survivors {
                let index = start + s.index as usize;
                let row = part.rows[index];
                if !unmasked && mask.hidden(row) {
                    continue;
                }
                let (lower, upper) = if self.sure {
                    let (lower, upper) = sure.bounds(part.norm[index]);
                    if beyond(lower, self.threshold) {
                        continue;
                    }
                    (lower, upper)
                } else {
                    (s.lower, s.est + (s.est - s.lower))
                };
                if ip {
                    self.longest = self.longest.max(self.reach + part.norm[index]);
                }
                self.pending.push(Pending {
                    row,
                    est: s.est,
                    lower,
                    upper,
                    sum: s.sum,
                    slot,
                    part: number as u32,
                    index: index as u32,
                });
            }
            self.tighten(candidates, false);
        }
    }

    /// Lowers the threshold by the upper bounds of the copies seen so far: `COPIES * k` copies are at least k rows.
    fn tighten(&mut self, candidates: &CandidateSet, end: bool) {
        let enough = COPIES * self.k;
        let known = self.pending.len() + candidates.len();
        let step = if end { 0 } else { self.k.max(32) };
        if known < enough || self.pending.len() < self.tightened + step {
            return;
        }
        let uppers = candidates.list().iter().map(|c| c.upper).chain(self.pending.iter().map(|p| p.upper));
        let bound = kth_smallest(&mut self.scratch, uppers, enough);
        if bound < self.threshold {
            self.threshold = bound;
            self.pending.retain(|p| !beyond(p.lower, bound));
        }
        self.tightened = self.pending.len();
    }

    /// Ends the wave: what is left is refined and joins the candidates, and the threshold falls. `part` gives the
    /// parts of the wave's leaves by slot and number, in the order in which they were scanned.
    pub(crate) fn end<'p>(
        &mut self,
        frame: &Frame,
        candidates: &mut CandidateSet,
        part: impl Fn(u32, u32) -> LeafPart<'p>,
    ) {
        self.tighten(candidates, true);
        let threshold = self.threshold;
        self.pending.retain(|p| !beyond(p.lower, threshold));
        let mut first = self.pending.len();
        if !self.sure && candidates.len() < self.k {
            // No good threshold yet: refine the most promising copies, then what the better threshold leaves.
            let promising = COPIES * self.k + 16;
            if 2 * promising < first {
                self.pending.select_nth_unstable_by_key(promising, |p| (ordered(p.est), p.row, p.slot));
                first = promising;
            }
        }
        self.refine(frame, candidates, 0..first, &part);
        self.settle(candidates);
        if first < self.pending.len() {
            self.refine(frame, candidates, first..self.pending.len(), &part);
            self.settle(candidates);
        }
        self.pending.clear();
        self.slots.clear();
        self.tightened = 0;
    }

    fn refine<'p>(
        &mut self,
        frame: &Frame,
        candidates: &mut CandidateSet,
        range: std::ops::Range<usize>,
        part: &impl Fn(u32, u32) -> LeafPart<'p>,
    ) {
        let bytes = frame.padded() / 2;
        for p in &self.pending[range] {
            if beyond(p.lower, self.threshold) {
                continue;
            }
            let slot = &self.slots[p.slot as usize];
            let mut c = Candidate { row: p.row, est: p.est, lower: p.lower, upper: p.upper, rank: slot.rank };
            if !self.sure {
                let part = part(p.slot, p.part);
                if let Some(r) = part.refine {
                    let i = p.index as usize;
                    let nibbles = &r.nibbles[i * bytes..(i + 1) * bytes];
                    let value = frame.kernels().refine(&self.query, p.sum, nibbles);
                    let factors =
                        RefineFactors { f_add: r.f_add[i], f_rescale: r.f_rescale[i], f_error: r.f_error[i] };
                    (c.est, c.lower) = slot.terms.refine(factors, part.norm[i], value);
                    c.upper = c.est + (c.est - c.lower);
                    self.refined += 1;
                }
            }
            candidates.push(c);
        }
    }

    /// Takes the threshold from the candidates and drops those beyond it.
    fn settle(&mut self, candidates: &mut CandidateSet) {
        let bound = kth_smallest(&mut self.scratch, candidates.list().iter().map(|c| c.upper), self.k);
        self.threshold = self.threshold.min(bound);
        candidates.prune(self.threshold);
    }
}
