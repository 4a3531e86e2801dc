//! The state machine of one query.

use pando_kernels::CodeSpace;

use super::candidates::{Candidate, CandidateSet, kth_smallest, kths_smallest};
use super::frame::Rounding;
use super::leaf::{LeafPart, LeafSource, RowMask};
use super::nav::{Nav, NavState};
use super::order::LeafOrder;
use super::rerank::{Hit, Rerank};
use super::scan::Scan;
use pando_kernels::prefetch;

/// Standard errors between an estimate and its bound, unless the query says otherwise (eps0 of the RaBitQ paper). 3 % of rows
/// lie beyond it, but only those of them that are near the k-th distance are lost.
pub const DEFAULT_EPS0: f32 = 1.9;
/// [`DEFAULT_EPS0`] where a little more may be lost: about 0.001 of recall for a third to a half fewer refined rows than with
/// wide bounds (docs/performance.md).
pub const NARROW_EPS0: f32 = 1.6;
/// [`DEFAULT_EPS0`] where hardly a row may be lost: 0.6 % of rows lie beyond it.
pub const WIDE_EPS0: f32 = 2.5;

/// Full effort asks for a re-ranking as soon as this many rows wait for it.
const FULL_BATCH: usize = 65_536;
/// Leaves of the first wave.
const FIRST_WAVE: usize = 8;
/// Leaves of a step after the first, at least.
const STEP: usize = 2;
/// Leaves that the stopping rule does not apply to: a row's nearest leaf, which has it, comes first, so that it finds itself.
/// With eight, collections that lie in tight clusters were searched further than was asked (docs/performance.md).
const ALWAYS: usize = 4;
/// Largest wave.
const LARGEST_WAVE: usize = 512;

/// Rows of a part whose factors are asked for ahead of its scan.
const PREFETCHED_ROWS: usize = 512;

/// How many leaves to look at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effort {
    /// Rule H: go on while `d' - d'_0 / 2 - T / 2 <= margin`, T the k-th distance known (dot: margin times the
    /// query's norm).
    Margin(f32),
    /// This many leaves.
    Leaves(usize),
    /// All leaves, and only sure bounds: the answer of an exact search.
    Full,
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SearchParams {
    /// Number of rows wanted, at least 1.
    pub k: usize,
    /// Standard errors between an estimate and its bound, see [`DEFAULT_EPS0`].
    pub eps0: f32,
    /// How many leaves to look at.
    pub effort: Effort,
}

impl Default for SearchParams {
    fn default() -> Self {
        Self { k: 10, eps0: DEFAULT_EPS0, effort: Effort::Full }
    }
}

/// Work done for a query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Waves of leaves.
    pub waves: u32,
    /// Leaves scanned.
    pub leaves: u32,
    /// 1-bit codes scanned, extra rows included.
    pub codes: u64,
    /// Rows whose refine code was read.
    pub refined: u64,
    /// Rows whose vector was read.
    pub reranked: u64,
}

/// Searches one query at a time. Holds all scratch memory: no allocation once it is warm.
#[derive(Default)]
pub struct Searcher {
    params: SearchParams,
    rounding: Rounding,
    nav: NavState,
    order: LeafOrder,
    scan: Scan,
    candidates: CandidateSet,
    rerank: Rerank,
    wave: Vec<u32>,
    /// d' of each leaf of the wave.
    scores: Vec<f32>,
    /// Leaves of the wave that are scanned.
    scanned: usize,
    /// Where the step began in the wave whose end waits for refine codes.
    unfinished: Option<usize>,
    /// Rank of the next leaf to scan.
    rank: usize,
    waves: u32,
    stopped: bool,
    /// T of the stopping rule.
    kth_estimate: f32,
    /// Unit of the margin.
    unit: f32,
    scratch: Vec<u32>,
    /// Always empty: the memory of a step's list of parts.
    parts: Vec<LeafPart<'static>>,
}

impl Searcher {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a query. `query` is the original vector (`dim` values).
    pub fn begin(&mut self, nav: &Nav, query: &[f32], params: &SearchParams) {
        let frame = nav.frame();
        assert!(
            query.len() == frame.dim() && params.k > 0,
            "query of the collection's dimension, k at least 1"
        );
        self.params = *params;
        self.rounding = frame.rounding();
        self.scan.begin(frame, query, params.k, params.eps0, params.effort == Effort::Full);
        self.unit = match frame.space() {
            CodeSpace::Ip if self.scan.norm() > 0.0 => self.scan.norm(),
            _ => 1.0,
        };
        if nav.leaves() > 1 {
            self.nav.query.prepare_with(frame.kernels(), self.scan.rotated());
            self.nav.norm = self.scan.norm();
            self.nav.constant = match frame.space() {
                CodeSpace::L2 => frame.kernels().norm2(self.scan.rotated()),
                CodeSpace::Ip => -frame.kernels().dot(self.scan.prepared(), frame.mean()),
            };
        }
        self.order.begin(nav, &self.nav);
        self.candidates.begin(params.k);
        self.rerank.begin(params.k);
        self.wave.clear();
        (self.scanned, self.unfinished) = (0, None);
        (self.rank, self.waves, self.stopped) = (0, 0, false);
        self.kth_estimate = f32::INFINITY;
    }

    /// The query in prepared space, as [`super::Frame::exact`] wants it.
    pub fn prepared_query(&self) -> &[f32] {
        self.scan.prepared()
    }

    /// Scans rows that lie outside the tree (the tail), coded against `centroid`. Any number of times after `begin`,
    /// before the first wave.
    pub fn scan_extra<M: RowMask + ?Sized>(
        &mut self,
        nav: &Nav,
        centroid: &[f32],
        parts: &[LeafPart<'_>],
        mask: &M,
    ) {
        let frame = nav.frame();
        self.scan.leaf(frame, centroid, 0);
        for (number, part) in parts.iter().enumerate() {
            self.scan.part(frame, &self.candidates, number, part, &[], mask);
        }
        let _ = self.scan.end(frame, &mut self.candidates, parts, &|_, _| None);
        self.update_estimate();
    }

    /// Decides on the next wave: ordinals of leaves in rank order, empty when the scan is over. The caller loads the
    /// leaves and calls [`Searcher::scan_wave`]. A wave is what may be wanted with what is known now: its last leaves
    /// are not scanned if the first ones settle the matter.
    pub fn next_wave(&mut self, nav: &Nav) -> &[u32] {
        self.wave.clear();
        self.scores.clear();
        self.scanned = 0;
        let size = wave_size(self.waves);
        while !self.stopped && self.wave.len() < size {
            let place = self.rank + self.wave.len();
            match self.order.get(nav, &self.nav, place) {
                Some(next) if self.wants(place, next.score) => {
                    self.wave.push(next.leaf);
                    self.scores.push(next.score);
                }
                _ => self.stopped = true,
            }
        }
        &self.wave
    }

    /// Whether the leaf at `place` in the order, of d' `score`, is to be scanned. While fewer than k live rows are
    /// known, nothing but the end of the leaves stops the search; and the first leaves are always scanned.
    fn wants(&self, place: usize, score: f32) -> bool {
        let known = self.rank > 0 && self.candidates.len() + self.rerank.hits().len() >= self.params.k;
        match self.params.effort {
            Effort::Leaves(n) => place < n || !known,
            // Nothing is known of a NaN: it goes on.
            Effort::Margin(margin) => {
                let excess = self.excess(score, self.kth_estimate);
                !known || place < ALWAYS || excess <= margin || excess.is_nan()
            }
            Effort::Full => true,
        }
    }

    /// How far a leaf of this d' is beyond the rule's zero, in units of the margin; `kth` is T.
    pub(crate) fn excess(&self, score: f32, kth: f32) -> f32 {
        (score - 0.5 * self.order.first() - 0.5 * kth) / self.unit
    }

    /// d' of the leaves of the wave, in rank order.
    pub(crate) fn wave_scores(&self) -> &[f32] {
        &self.scores
    }

    /// Scans the leaves of the wave, in steps: after each, T is brought up to date and the rule is asked again. `false`: the
    /// refine codes of [`Searcher::missing`] have to be loaded first; called again it goes on.
    pub fn scan_wave<L: LeafSource + ?Sized, M: RowMask + ?Sized>(
        &mut self,
        nav: &Nav,
        leaves: &L,
        mask: &M,
    ) -> bool {
        let margin = self.margin();
        self.rerank.pause(&mut self.candidates, margin);
        loop {
            match self.try_step(nav, leaves, mask) {
                None => return false,
                Some(0) => break,
                Some(_) => {}
            }
        }
        self.end_wave();
        true
    }

    /// Rows of the wave whose refine codes were missing (name of the part, row of it), and how many of them, the first, are
    /// needed to go on; the others are what the step may want next, loaded or not.
    pub fn missing(&self) -> (&[(u64, u32)], usize) {
        self.scan.missing()
    }

    pub(crate) fn end_wave(&mut self) {
        self.waves += 1;
    }

    /// Scans the next few leaves of the wave and returns their number: 0 if none is wanted any more.
    pub(crate) fn step<L: LeafSource + ?Sized, M: RowMask + ?Sized>(
        &mut self,
        nav: &Nav,
        leaves: &L,
        mask: &M,
    ) -> usize {
        self.try_step(nav, leaves, mask).expect("all refine codes are in the parts")
    }

    /// [`Searcher::step`]; nothing if it needs [`Searcher::missing`].
    fn try_step<L: LeafSource + ?Sized, M: RowMask + ?Sized>(
        &mut self,
        nav: &Nav,
        leaves: &L,
        mask: &M,
    ) -> Option<usize> {
        let frame = nav.frame();
        let mut parts = recycled(std::mem::take(&mut self.parts));
        let first = match self.unfinished.take() {
            Some(first) => {
                for &leaf in &self.wave[first..self.scanned] {
                    parts.extend((0..leaves.parts(leaf)).map(|number| leaves.part(leaf, number)));
                }
                first
            }
            None => {
                let first = self.scanned;
                self.scan_leaves(nav, leaves, mask, &mut parts);
                first
            }
        };
        let done = self.scanned - first;
        let away = |name, index| leaves.refine_row(name, index);
        let ended = match done {
            0 => Some(false),
            _ => self.scan.end(frame, &mut self.candidates, &parts, &away),
        };
        self.parts = recycled(parts);
        let Some(any) = ended else {
            self.unfinished = Some(first);
            return None;
        };
        if any {
            self.update_estimate();
        }
        self.rank += done;
        Some(done)
    }

    /// The 1-bit scans of a step; `parts` is filled with what was scanned, and perhaps more.
    fn scan_leaves<'a, L: LeafSource + ?Sized, M: RowMask + ?Sized>(
        &mut self,
        nav: &Nav,
        leaves: &'a L,
        mask: &M,
        parts: &mut Vec<LeafPart<'a>>,
    ) {
        let frame = nav.frame();
        let first = self.scanned;
        let last = self.wave.len().min(first + step_size(self.rank));
        let mut next = 0;
        let mut next_centroid: &[f32] = &[];
        if let Some(&leaf) = self.wave.get(first) {
            next_centroid = leaves.centroid(leaf);
            parts.extend((0..leaves.parts(leaf)).map(|number| leaves.part(leaf, number)));
        }
        for i in first..last {
            if !self.wants(self.rank + i - first, self.scores[i]) {
                self.stopped = true;
                break;
            }
            let (here, centroid) = (next..parts.len(), next_centroid);
            next = parts.len();
            if let Some(&leaf) = self.wave.get(i + 1) {
                next_centroid = leaves.centroid(leaf);
                prefetch(next_centroid);
                parts.extend((0..leaves.parts(leaf)).map(|number| leaves.part(leaf, number)));
                for part in &parts[next..] {
                    prefetch_columns(part, self.scan.takes_all());
                }
            }
            self.scan.leaf(frame, centroid, (self.rank + i - first) as u32);
            for number in here {
                let ahead = parts.get(number + 1).map_or(&[][..], |part| part.packed);
                self.scan.part(frame, &self.candidates, number, &parts[number], ahead, mask);
            }
            self.scanned += 1;
        }
    }

    /// Whether so many candidates wait that they should be measured (with [`Searcher::next_rerank`], until it is
    /// empty) before the next wave. Only at full effort; ignoring it costs memory.
    pub fn should_rerank(&self) -> bool {
        self.params.effort == Effort::Full && self.candidates.len() >= FULL_BATCH
    }

    /// All rows that the re-ranking may ask for, in order of their estimates, for a caller that fetches ahead.
    pub fn candidates(&mut self) -> &[Candidate] {
        self.rerank.start(&mut self.candidates, self.scan.threshold());
        self.candidates.list()
    }

    /// The next rows to measure with [`super::Frame::exact`] against [`Searcher::prepared_query`]: at first a few more
    /// than k, then smaller batches. Empty when no other row can be among the first k.
    pub fn next_rerank(&mut self) -> &[u64] {
        let margin = self.margin();
        self.rerank.next(&mut self.candidates, self.scan.threshold(), margin)
    }

    /// Takes the distances of the rows of the last batch, in its order.
    pub fn feed_rerank(&mut self, distances: &[f32]) {
        self.rerank.feed(distances);
        self.scan.lower_threshold(self.rerank.kth() + self.margin());
    }

    /// The rows that may be among the first k: all whose distance is at most the k-th but for rounding, ties
    /// included, by (distance, row). The caller ranks them in f64 and cuts.
    pub fn finish(&mut self) -> &[Hit] {
        let margin = self.margin();
        self.rerank.finish(margin)
    }

    /// Work done so far.
    pub fn counters(&self) -> Counters {
        Counters {
            waves: self.waves,
            leaves: self.rank as u32,
            codes: self.scan.codes,
            refined: self.scan.refined,
            reranked: self.rerank.measured,
        }
    }

    /// Rounding of distances near the k-th.
    fn margin(&self) -> f32 {
        let kth = self.rerank.kth();
        if kth < f32::INFINITY {
            self.rounding.margin(kth, self.scan.norm(), self.scan.longest())
        } else {
            0.0
        }
    }

    fn update_estimate(&mut self) {
        self.kth_estimate = match self.candidates.kth_estimate() {
            Some(kth) if self.rerank.hits().is_empty() => kth,
            _ => self.estimate(self.params.k),
        };
    }

    /// The `k`-th smallest distance as far as known: exact where measured, else estimated.
    pub(crate) fn estimate(&mut self, k: usize) -> f32 {
        let measured = self.rerank.hits().iter().map(|h| h.distance);
        let estimated = self.candidates.list().iter().map(|c| c.est);
        kth_smallest(&mut self.scratch, measured.chain(estimated), k)
    }

    /// [`Searcher::estimate`] for several k (ascending).
    pub(crate) fn estimates<const N: usize>(&mut self, ks: &[usize; N]) -> [f32; N] {
        let measured = self.rerank.hits().iter().map(|h| h.distance);
        let estimated = self.candidates.list().iter().map(|c| c.est);
        kths_smallest(&mut self.scratch, measured.chain(estimated), ks)
    }
}

/// Asks for what a scan of the part reads beside the codes; the row numbers only if it will read them all.
fn prefetch_columns(part: &LeafPart<'_>, with_rows: bool) {
    // A huge part is long under way before its end is wanted.
    let rows = part.rows.len().min(PREFETCHED_ROWS);
    for column in [part.f_add, part.f_rescale, part.norm] {
        prefetch(&column[..rows]);
    }
    if with_rows {
        prefetch(&part.rows[..rows]);
    }
}

/// An empty list of parts in the memory of another one.
fn recycled<'a>(mut parts: Vec<LeafPart<'_>>) -> Vec<LeafPart<'a>> {
    parts.clear();
    // Nothing is mapped: the standard library keeps the memory, as both types have one layout.
    parts.into_iter().map(|_| unreachable!("the list is empty")).collect()
}

/// Leaves scanned with one T, from a given rank on: fixed by rank, like the waves.
fn step_size(rank: usize) -> usize {
    match rank {
        0 => ALWAYS,
        rank => (rank / 8).next_power_of_two().max(STEP),
    }
}

/// Leaves of a wave: 8, 8, 16, 16, 32, 32, ...
fn wave_size(wave: u32) -> usize {
    (FIRST_WAVE << (wave / 2).min(16)).min(LARGEST_WAVE)
}
