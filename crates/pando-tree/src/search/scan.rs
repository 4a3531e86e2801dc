//! One wave: 1-bit scans of its leaves, then refinement of what survives.
//!
//! What a wave adds to the candidates is a function of the threshold before it and of the *set* of copies of codes in
//! it. Inside the wave the threshold is tightened as leaves are scanned, but only to bounds that the end of the wave
//! applies to all copies alike, so neither the order nor the place of a scan changes the outcome.

use pando_kernels::{
    BLOCK_ROWS, BitColumns, CodeSpace, Planes, RefineFactors, ScanQuery, ScanTerms, Survivor,
};

use super::candidates::{Candidate, CandidateSet, Smallest, beyond};
use super::frame::Frame;
use super::leaf::{LeafPart, RefineRow, RowMask};
use super::order::ordered;
use pando_kernels::prefetch;

/// Rows scanned with one threshold.
const CHUNK: usize = 128 * BLOCK_ROWS;
/// A norm column is rounded up by less than this.
const NORM_SLACK: f32 = 3.2e-5;
/// Copies of a row's code in one root.
const COPIES: usize = 2;

/// Refine codes are asked for this many rows ahead.
const AHEAD: usize = 6;

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
    /// Rows beyond it are not among the first k: at least k candidates or measured rows are not beyond it, and stay.
    threshold: f32,
    /// The threshold of the step under way: also by the 1-bit bounds of its copies. These may turn out wrong when the
    /// copies are refined, so it is forgotten with the step; otherwise fewer than k rows might be left.
    limit: f32,
    /// No distance is less: 0, or for dot nothing. Rows that are one point but for rounding have one code and fail their
    /// bound together: an upper bound below 0 would rule out every other row.
    least: f32,
    slots: Vec<Slot>,
    pending: Vec<Pending>,
    /// Upper bounds of the pending copies, while there are fewer than k candidates.
    uppers: Smallest,
    /// Norm of the centroid of the leaf started last (dot).
    reach: f32,
    /// No candidate's vector is longer (dot): for the rounding margin of exact distances.
    longest: f32,
    survivors: Vec<Survivor>,
    /// Pending copies by estimate.
    order: Vec<u64>,
    /// How far [`Scan::end`] came before it found codes missing.
    ending: Option<Ending>,
    /// Rows whose refine codes are missing: part by its name, row of it. Those of the batch that is next come first.
    missing: Vec<(u64, u32)>,
    missing_next: usize,
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
    est: f32,
    lower: f32,
    upper: f32,
    sum: u32,
    slot: u32,
    /// Place among the parts of the step.
    part: u32,
    /// Row of the part.
    index: u32,
}

/// Where a step's end is.
#[derive(Clone, Copy)]
struct Ending {
    /// There were fewer than k candidates before it.
    few: bool,
    /// Pending copies that were refined or dropped.
    done: usize,
    /// Copies to refine next.
    batch: usize,
    /// They are the first of those that are left.
    chosen: bool,
}

/// Refine codes that are away, by the part's name and the row of the part.
pub(crate) type Away<'a> = &'a dyn Fn(u64, u32) -> Option<RefineRow<'a>>;

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
        self.query.prepare_with(frame.kernels(), &self.rotated, Planes::P6);
        self.norm = frame.kernels().norm2(&self.prepared).sqrt();
        (self.k, self.eps0, self.sure) = (k, eps0, sure);
        (self.threshold, self.limit) = (f32::INFINITY, f32::INFINITY);
        self.least = match frame.space() {
            CodeSpace::L2 => 0.0,
            CodeSpace::Ip => f32::NEG_INFINITY,
        };
        self.longest = 0.0;
        self.uppers.begin(COPIES.saturating_mul(k));
        (self.codes, self.refined) = (0, 0);
        self.pending.clear();
        self.slots.clear();
        self.ending = None;
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

    /// Rows beyond it are not among the first k.
    pub(crate) fn threshold(&self) -> f32 {
        self.threshold
    }

    /// Lowers the threshold to a bound found otherwise.
    pub(crate) fn lower_threshold(&mut self, bound: f32) {
        self.threshold = self.threshold.min(bound);
        self.limit = self.threshold;
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

    /// Scans a part of the leaf started last; `number` is its place among the parts of the step, `ahead` the codes
    /// that will be scanned next.
    pub(crate) fn part<M: RowMask + ?Sized>(
        &mut self,
        frame: &Frame,
        candidates: &CandidateSet,
        number: usize,
        part: &LeafPart<'_>,
        ahead: &[u8],
        mask: &M,
    ) {
        let Some(slot) = self.slots.last() else { return };
        let (terms, sure) = (slot.terms, slot.sure);
        let slot = self.slots.len() as u32 - 1;
        let unmasked = mask.is_empty();
        let ip = frame.space() == CodeSpace::Ip;
        let (bytes, refine_bytes) = (frame.padded() / 8, frame.padded() / 2);
        // With k candidates the threshold is good enough that most of what survives will be refined.
        let few = candidates.len() < self.k;
        let settled = !self.sure && !few;
        let n = part.rows.len();
        self.codes += n as u64;
        let mut end = 0;
        while end < n {
            let start = end;
            // Until there is a threshold every row survives: it is worth finding one soon.
            let chunk = if self.limit == f32::INFINITY { self.opening() } else { CHUNK };
            end = n.min(start + chunk);
            let ahead = if end == n { ahead } else { &[] };
            let columns = BitColumns {
                f_add: &part.f_add[start..end],
                f_rescale: &part.f_rescale[start..end],
                norm: &part.norm[start..end],
            };
            let packed = &part.packed[start * bytes..end.next_multiple_of(BLOCK_ROWS) * bytes];
            let limit = if self.sure { f32::INFINITY } else { self.limit };
            self.survivors.clear();
            let found = &mut self.survivors;
            frame.kernels().scan_estimates_ahead(&self.query, packed, columns, &terms, limit, found, ahead);
            for s in &self.survivors {
                let index = start + s.index as usize;
                // Where nothing is hidden the row's number is not looked at before its turn comes.
                if !unmasked && mask.hidden(part.rows[index]) {
                    continue;
                }
                let (lower, upper) = if self.sure {
                    let (lower, upper) = sure.bounds(part.norm[index]);
                    if beyond(lower, self.limit) {
                        continue;
                    }
                    (lower, upper)
                } else {
                    (s.lower, (s.est + (s.est - s.lower)).max(self.least))
                };
                if ip {
                    self.longest = self.longest.max(self.reach + part.norm[index]);
                }
                if few {
                    self.uppers.offer(upper);
                }
                if settled {
                    prefetch_refine(index, refine_bytes, part);
                }
                self.pending.push(Pending {
                    est: s.est,
                    lower,
                    upper,
                    sum: s.sum,
                    slot,
                    part: number as u32,
                    index: index as u32,
                });
            }
            if few {
                // COPIES * k copies are at least k rows.
                self.limit = self.limit.min(self.uppers.kth());
            }
        }
    }

    /// Rows to scan before there is a first limit: enough to have one then.
    fn opening(&self) -> usize {
        self.k.max(32).saturating_mul(COPIES).next_multiple_of(2 * BLOCK_ROWS).min(CHUNK)
    }

    /// Whether every row of the next part will survive.
    pub(crate) fn takes_all(&self) -> bool {
        self.limit == f32::INFINITY
    }

    /// Ends the step: what is left is refined and joins the candidates, and the threshold falls. `parts` are those of
    /// the step by number. False if nothing was left; nothing if [`Scan::missing`] has to be loaded first: then it goes on
    /// where it was when it is called again.
    pub(crate) fn end<'a>(
        &mut self,
        frame: &Frame,
        candidates: &mut CandidateSet,
        parts: &[LeafPart<'a>],
        away: Away<'a>,
    ) -> Option<bool> {
        let any = !self.pending.is_empty();
        let mut order = std::mem::take(&mut self.order);
        let mut e = self.ending.take().unwrap_or_else(|| {
            let few = candidates.len() < self.k;
            order.clear();
            order.extend(self.pending.iter().zip(0..).map(|(p, i)| u64::from(ordered(p.est)) << 32 | i));
            let batch = if few { self.k + self.k / 4 + 6 } else { 0 };
            Ending { few, done: 0, batch, chosen: false }
        });
        let some_away = !self.sure && parts.iter().any(|part| part.away.is_some());
        loop {
            if !e.chosen {
                self.drop_beyond(&mut order, e.done);
                if e.done == order.len() {
                    break;
                }
                // The most promising copies first, so that the threshold has fallen when the others' turn comes.
                e.batch = e.batch.max(self.k / 2).max(16);
                let rest = &mut order[e.done..];
                if !self.sure && rest.len() > 2 * e.batch {
                    rest.select_nth_unstable(e.batch);
                } else {
                    e.batch = rest.len();
                }
                e.chosen = true;
            }
            if some_away && self.look_for_missing(candidates, &order[e.done..], e.batch, parts, away) {
                (self.order, self.ending) = (order, Some(e));
                return None;
            }
            self.refine(frame, candidates, &order[e.done..e.done + e.batch], e.few, parts, away);
            let bound = candidates.kth_upper(&mut self.scratch);
            self.threshold = self.threshold.min(bound);
            self.limit = self.limit.min(bound);
            e = Ending { few: e.few, done: e.done + e.batch, batch: 0, chosen: false };
        }
        self.order = order;
        self.limit = self.threshold;
        candidates.prune_if_many(self.threshold, self.k);
        self.pending.clear();
        self.slots.clear();
        self.uppers.begin(COPIES.saturating_mul(self.k));
        Some(any)
    }

    /// The rows that [`Scan::end`] found missing, and how many of them (the first) it needs to go on; the others are what the
    /// step may want next, if it has not.
    pub(crate) fn missing(&self) -> (&[(u64, u32)], usize) {
        (&self.missing, self.missing_next)
    }

    /// Whether refine codes of the first `batch` copies of `order` have to be loaded; lists what is missing.
    fn look_for_missing(
        &mut self,
        candidates: &CandidateSet,
        order: &[u64],
        batch: usize,
        parts: &[LeafPart<'_>],
        away: Away<'_>,
    ) -> bool {
        self.missing.clear();
        for &key in &order[..batch] {
            let p = &self.pending[key as u32 as usize];
            let part = &parts[p.part as usize];
            if let Some(name) = part.away
                && !beyond(p.lower, self.limit)
                && !candidates.knows(part.rows[p.index as usize])
                && away(name, p.index).is_none()
            {
                self.missing.push((name, p.index));
            }
        }
        self.missing_next = self.missing.len();
        if self.missing.is_empty() {
            return false;
        }
        for &key in &order[batch..] {
            let p = &self.pending[key as u32 as usize];
            if let Some(name) = parts[p.part as usize].away
                && !beyond(p.lower, self.limit)
            {
                self.missing.push((name, p.index));
            }
        }
        // Neighbours are read together.
        self.missing[..self.missing_next].sort_unstable();
        true
    }

    /// Drops the copies that are beyond the limit by now from `order[done..]`.
    fn drop_beyond(&self, order: &mut Vec<u64>, done: usize) {
        let mut kept = done;
        for at in done..order.len() {
            if !beyond(self.pending[order[at] as u32 as usize].lower, self.limit) {
                order[kept] = order[at];
                kept += 1;
            }
        }
        order.truncate(kept);
    }

    /// Adds some of the pending copies (places in the low halves of `order`) to the candidates, with their refine
    /// codes where there are any. `cold`: nobody asked for these codes yet.
    fn refine<'a>(
        &mut self,
        frame: &Frame,
        candidates: &mut CandidateSet,
        order: &[u64],
        cold: bool,
        parts: &[LeafPart<'a>],
        away: Away<'a>,
    ) {
        let bytes = frame.padded() / 2;
        let at = |i: usize| order.get(i).map(|&key| &self.pending[key as u32 as usize]);
        let mut refined = 0;
        for n in 0..order.len() + AHEAD {
            if let Some(ahead) = at(n)
                && cold
                && !self.sure
                && !beyond(ahead.lower, self.limit)
            {
                prefetch_refine(ahead.index as usize, bytes, &parts[ahead.part as usize]);
            }
            let Some(p) = n.checked_sub(AHEAD).and_then(at) else { continue };
            if beyond(p.lower, self.limit) {
                continue;
            }
            let slot = &self.slots[p.slot as usize];
            let part = &parts[p.part as usize];
            let row = part.rows[p.index as usize];
            let mut c = Candidate { row, est: p.est, lower: p.lower, upper: p.upper, rank: slot.rank };
            if !self.sure && (part.refine.is_some() || part.away.is_some()) {
                // The second copy of a refined row says nothing new.
                if candidates.knows(row) {
                    continue;
                }
                let i = p.index as usize;
                let code = match (&part.refine, part.away) {
                    (Some(r), _) => Some(RefineRow {
                        nibbles: &r.nibbles[i * bytes..(i + 1) * bytes],
                        f_add: r.f_add[i],
                        f_rescale: r.f_rescale[i],
                        f_error: r.f_error[i],
                    }),
                    (None, Some(name)) => away(name, p.index),
                    (None, None) => None,
                };
                let Some(r) = code else { unreachable!("it was looked for before the batch") };
                let value = frame.kernels().refine(&self.query, p.sum, r.nibbles);
                let factors = RefineFactors { f_add: r.f_add, f_rescale: r.f_rescale, f_error: r.f_error };
                (c.est, c.lower) = slot.terms.refine(factors, part.norm[i], value);
                c.upper = (c.est + (c.est - c.lower)).max(self.least);
                refined += 1;
            }
            candidates.push(c);
        }
        self.refined += refined;
    }
}

/// Asks for number and refine code of a row of the part.
#[inline]
fn prefetch_refine(i: usize, bytes: usize, part: &LeafPart<'_>) {
    prefetch(&part.rows[i..=i]);
    if let Some(r) = part.refine {
        prefetch(&r.nibbles[i * bytes..(i + 1) * bytes]);
        for column in [r.f_add, r.f_rescale, r.f_error] {
            prefetch(&column[i..=i]);
        }
    }
}
