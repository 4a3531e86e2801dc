//! One search as a task that runs on the CPU pool and says what it needs loaded: it never waits for storage.

use std::sync::Arc;

use pando_kernels::{ExactQuery, prefetch};
use pando_tree::search::{Counters, Effort, Hit, Nav, RowMask, SearchParams, Searcher};

use crate::error::Result;
use crate::root::{Files, Loaded, OpenRoot, RowVectors, Wanted, WaveLeaves, WaveView};
use crate::tail::TailReader;
use crate::view::View;

/// What a search needs before it can go on.
#[derive(Debug)]
pub enum Need {
    /// Slots of leaf and refine blocks of the root.
    Slots(Wanted),
    /// Vectors of these root rows.
    Vectors(Vec<u64>),
    /// Vectors of these tail rows (row, body, place in it), read again from the log.
    TailVectors(Vec<(u64, u32, u32)>),
    /// Nothing: the search is over.
    Nothing,
}

/// A row of the answer: exact distance by the collection's metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ranked {
    /// Row number, of the root or the tail.
    pub row: u64,
    /// f64 distance of the original vectors.
    pub distance: f64,
}

/// What a search came to.
pub struct Found {
    /// The rows of the answer and possibly more that tie with the last, in no order.
    pub ranked: Vec<Ranked>,
    /// Work done.
    pub counters: Counters,
    /// Tail rows scanned.
    pub tail_rows: u64,
    /// For the next search.
    pub scratch: Box<Scratch>,
}

/// The memory of a search, kept for the next one: a warm search allocates next to nothing.
#[derive(Default)]
pub struct Scratch {
    searcher: Searcher,
    wave: Vec<u32>,
    leaves: WaveLeaves,
    rows: Vec<u64>,
    distances: Vec<f32>,
    /// f64 distances of all rows measured so far, but for full effort, which measures many more than it ranks.
    exact: Vec<f64>,
    loaded: RowVectors,
    /// Always empty: the memory of the list of vectors that are being measured.
    vectors: Vec<&'static [f32]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Begin,
    Wave,
    Rerank,
    Rank,
}

/// One search over one view.
pub struct SearchTask {
    view: Arc<View>,
    position: u64,
    query: Vec<f32>,
    params: SearchParams,
    scratch: Box<Scratch>,
    phase: Phase,
    /// No leaf is left to scan.
    scanned: bool,
    /// Vectors loaded for the rows that are being measured.
    vectors: RowVectors,
    /// The vectors were loaded for the rows that are being measured: what else these rows need is added to them.
    gathering: bool,
    ranked: Vec<Ranked>,
    tail_rows: u64,
}

/// Rows that a read at a position must not see: dead in the root, or hidden by the tail.
struct Mask<'a> {
    root: Option<&'a OpenRoot>,
    tail: &'a TailReader<'a>,
    position: u64,
}

impl RowMask for Mask<'_> {
    fn is_empty(&self) -> bool {
        self.tail.is_empty() && self.root.is_none_or(|root| root.deaths().is_empty())
    }
    fn hidden(&self, row: u64) -> bool {
        self.root.is_some_and(|root| root.deaths().contains(row)) || self.tail.hides(row, self.position)
    }
}

impl SearchTask {
    /// A search for `query` (original vector) in `view` at `position`.
    pub fn new(
        view: Arc<View>,
        position: u64,
        query: Vec<f32>,
        params: SearchParams,
        mut scratch: Box<Scratch>,
    ) -> Self {
        let mut vectors = std::mem::take(&mut scratch.loaded);
        vectors.reset(query.len());
        // A search that was given up leaves its marks.
        scratch.wave.clear();
        scratch.leaves.clear();
        scratch.rows.clear();
        Self {
            view,
            position,
            query,
            params,
            scratch,
            phase: Phase::Begin,
            scanned: false,
            vectors,
            gathering: false,
            ranked: Vec::new(),
            tail_rows: 0,
        }
    }

    /// Runs until something has to be loaded, or to the end.
    pub fn run(&mut self) -> Need {
        let view = self.view.clone();
        let tail = view.tail.read();
        let root = view.root.as_deref();
        let nav = view.nav();
        let mask = Mask { root, tail: &tail, position: self.position };
        let mut files = Files::default();
        loop {
            let scratch = &mut *self.scratch;
            match self.phase {
                Phase::Begin => {
                    scratch.searcher.begin(nav, &self.query, &self.params);
                    scratch.exact.clear();
                    self.tail_rows = tail.rows_up_to(self.position) as u64;
                    if self.tail_rows > 0 {
                        let mean = view.tail.frame().mean();
                        scratch.searcher.scan_extra(nav, mean, &[tail.part()], &mask);
                    }
                    self.phase = Phase::Wave;
                }
                Phase::Wave => {
                    if scratch.wave.is_empty() {
                        scratch.wave.extend_from_slice(scratch.searcher.next_wave(nav));
                    }
                    let Some(root) = root.filter(|_| !scratch.wave.is_empty()) else {
                        (self.phase, self.scanned) = (Phase::Rerank, true);
                        continue;
                    };
                    let refine = self.params.effort != Effort::Full;
                    if let Err(missing) = root.gather(&scratch.wave, refine, &mut files, &mut scratch.leaves)
                    {
                        return Need::Slots(missing);
                    }
                    loop {
                        let (table, group_of) = (root.groups(), root.group_of());
                        let wave = WaveView { table, group_of, wave: &scratch.leaves };
                        if scratch.searcher.scan_wave(nav, &wave, &mask) {
                            break;
                        }
                        let (rows, next) = scratch.searcher.missing();
                        if !root.rows_at_hand(&rows[..next], &mut files, &mut scratch.leaves) {
                            // Storage is asked once for all that the step may want.
                            return Need::Slots(OpenRoot::slots_of(rows, &scratch.leaves));
                        }
                    }
                    scratch.wave.clear();
                    scratch.leaves.clear();
                    if scratch.searcher.should_rerank() {
                        self.phase = Phase::Rerank;
                    }
                }
                Phase::Rerank => {
                    if scratch.rows.is_empty() {
                        scratch.rows.extend_from_slice(scratch.searcher.next_rerank());
                    }
                    if scratch.rows.is_empty() && !self.scanned {
                        self.phase = Phase::Wave;
                        continue;
                    }
                    if scratch.rows.is_empty() {
                        self.phase = Phase::Rank;
                        let hits = scratch.searcher.finish();
                        // Ids are wanted next.
                        if let Some(root) = root {
                            hits.iter().for_each(|hit| root.prefetch_id(hit.row));
                        }
                        if self.params.effort == Effort::Full {
                            scratch.rows.extend(hits.iter().map(|hit| hit.row));
                        } else {
                            let exact = &scratch.exact;
                            let ranked = |hit: &Hit| Ranked { row: hit.row, distance: exact[hit.place as usize] };
                            self.ranked.extend(hits.iter().map(ranked));
                        }
                        continue;
                    }
                    match self.measure(root, &tail, nav, &mut files) {
                        Need::Nothing => {}
                        need => return need,
                    }
                    self.scratch.searcher.feed_rerank(&self.scratch.distances);
                    self.scratch.rows.clear();
                    self.gathering = false;
                }
                Phase::Rank => {
                    let need = match self.params.effort {
                        Effort::Full => self.rank(root, &tail, &mut files),
                        _ => Need::Nothing,
                    };
                    return need;
                }
            }
        }
    }

    /// Exact distances of the rows asked for, if all vectors are at hand.
    fn measure<'a>(
        &mut self,
        root: Option<&'a OpenRoot>,
        tail: &TailReader<'_>,
        nav: &Nav,
        files: &mut Files<'a>,
    ) -> Need {
        let frame = nav.frame();
        let full = self.params.effort == Effort::Full;
        let measured = self.with_vectors(root, tail, files, |scratch, query, vectors| {
            for vector in vectors.iter().take(PREFETCH_AHEAD) {
                prefetch(vector);
            }
            scratch.distances.clear();
            let prepared = scratch.searcher.prepared_query();
            let query = ExactQuery::new(frame.kernels(), frame.metric(), query);
            for (at, vector) in vectors.iter().enumerate() {
                if let Some(ahead) = vectors.get(at + PREFETCH_AHEAD) {
                    prefetch(ahead);
                }
                if full {
                    scratch.distances.push(frame.exact(prepared, vector));
                } else {
                    // Most rows that are measured are ranked: f64 at once costs less than a second look.
                    let distance = query.distance(vector);
                    scratch.exact.push(distance);
                    scratch.distances.push(frame.exact_of(distance));
                }
            }
        });
        let Err(mut missing) = measured else { return Need::Nothing };
        // Storage is asked once for everything that the re-rank is likely to want.
        let candidates = self.scratch.searcher.candidates();
        for candidate in candidates.iter().take(PREFETCH_ROWS) {
            missing.find(candidate.row, root, tail, &self.vectors);
        }
        missing.need()
    }

    /// f64 distances of the last rows of a search at full effort.
    fn rank<'a>(&mut self, root: Option<&'a OpenRoot>, tail: &TailReader<'_>, files: &mut Files<'a>) -> Need {
        let view = self.view.clone();
        let frame = view.tail.frame();
        let mut ranked = std::mem::take(&mut self.ranked);
        ranked.clear();
        let done = self.with_vectors(root, tail, files, |scratch, query, vectors| {
            let exact = ExactQuery::new(frame.kernels(), frame.metric(), query);
            let rows = scratch.rows.iter().zip(vectors);
            ranked.extend(rows.map(|(row, vector)| Ranked { row: *row, distance: exact.distance(vector) }));
        });
        self.ranked = ranked;
        match done {
            Ok(()) => Need::Nothing,
            Err(missing) => missing.need(),
        }
    }

    /// Calls `then` with the scratch memory, the query and the vectors of the rows asked for, if memory and cache have them
    /// all; says which they have not.
    fn with_vectors<'a>(
        &mut self,
        root: Option<&'a OpenRoot>,
        tail: &TailReader<'_>,
        files: &mut Files<'a>,
        mut then: impl FnMut(&mut Scratch, &[f32], &[&[f32]]),
    ) -> Result<(), Missing> {
        // What the cache and the operating system have is copied after the first look.
        for look in 0..2 {
            let scratch = &mut *self.scratch;
            let mut vectors = recycled(std::mem::take(&mut scratch.vectors));
            let all = at_hand(&scratch.rows, root, tail, &self.vectors, &mut vectors);
            if all {
                then(scratch, &self.query, &vectors);
            }
            scratch.vectors = recycled(vectors);
            if all {
                return Ok(());
            }
            if look == 0
                && let Some(root) = root
            {
                root.copy_at_hand(&scratch.rows, files, &mut self.vectors);
                for row in scratch.rows.iter().filter(|row| !tail.is_tail_row(**row)) {
                    // Damage is found again, and reported, by the load.
                    let _ = root.copy_cached(*row, &mut self.vectors);
                }
            }
        }
        let mut missing = Missing::default();
        for row in &self.scratch.rows {
            missing.find(*row, root, tail, &self.vectors);
        }
        Err(missing)
    }

    /// Takes slots that were loaded for [`Need::Slots`], beside those that the wave has.
    pub fn hold(&mut self, loaded: Loaded) -> Result<()> {
        match self.view.root.as_deref() {
            Some(root) => root.hold(loaded, &mut self.scratch.leaves),
            None => Ok(()),
        }
    }

    /// Takes vectors that were loaded for [`Need::Vectors`] or [`Need::TailVectors`]. Rows that need both keep the first
    /// while the second is loaded.
    pub fn supply(&mut self, vectors: RowVectors) {
        match self.gathering {
            true => self.vectors.absorb(&vectors),
            false => self.vectors = vectors,
        }
        self.gathering = true;
    }

    /// Ends the search.
    pub fn finish(mut self) -> Found {
        self.scratch.loaded = self.vectors;
        let counters = self.scratch.searcher.counters();
        Found { ranked: self.ranked, counters, tail_rows: self.tail_rows, scratch: self.scratch }
    }
}

/// Rows of candidates asked for in one read when storage has to be read at all.
const PREFETCH_ROWS: usize = 256;
/// Rows between the one being measured and the one whose vector is fetched ahead.
const PREFETCH_AHEAD: usize = 3;

/// The vectors of `rows` in their order, up to the first that is not in memory; whether all are.
fn at_hand<'a>(
    rows: &[u64],
    root: Option<&'a OpenRoot>,
    tail: &'a TailReader<'_>,
    loaded: &'a RowVectors,
    out: &mut Vec<&'a [f32]>,
) -> bool {
    let mut missing = Missing::default();
    for row in rows {
        match missing.find(*row, root, tail, loaded) {
            Some(vector) => out.push(vector),
            None => return false,
        }
    }
    true
}

/// An empty list of vectors in the memory of another one.
fn recycled<'a>(mut vectors: Vec<&[f32]>) -> Vec<&'a [f32]> {
    vectors.clear();
    // Nothing is mapped: the standard library keeps the memory, as both types have one layout.
    vectors.into_iter().map(|_| unreachable!("the list is empty")).collect()
}

/// What was not at hand.
#[derive(Default)]
struct Missing {
    vectors: Vec<u64>,
    tail: Vec<(u64, u32, u32)>,
}

impl Missing {
    fn find<'a>(
        &mut self,
        row: u64,
        root: Option<&'a OpenRoot>,
        tail: &'a TailReader<'_>,
        loaded: &'a RowVectors,
    ) -> Option<&'a [f32]> {
        if tail.is_tail_row(row) {
            let index = tail.index_of(row)?;
            let vector = tail.vector(index).or_else(|| loaded.get(row));
            if vector.is_none() {
                let (body, place) = tail.locate(index);
                self.tail.push((row, body, place));
            }
            return vector;
        }
        let vector = root.and_then(|root| root.vector(row, loaded));
        if vector.is_none() {
            self.vectors.push(row);
        }
        vector
    }

    fn need(mut self) -> Need {
        if !self.vectors.is_empty() {
            self.vectors.sort_unstable();
            self.vectors.dedup();
            return Need::Vectors(self.vectors);
        }
        if !self.tail.is_empty() {
            return Need::TailVectors(self.tail);
        }
        Need::Nothing
    }
}
