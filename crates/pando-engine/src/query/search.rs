//! One search as a task that runs on the CPU pool and says what it needs loaded: it never waits for storage.

use std::sync::Arc;

use pando_kernels::ExactQuery;
use pando_tree::search::{Counters, Nav, RowMask, SearchParams, Searcher};

use crate::root::{GroupBlocks, OpenRoot, RowVectors, WaveLeaves, WaveView};
use crate::tail::TailReader;
use crate::view::View;

/// What a search needs before it can go on.
#[derive(Debug)]
pub enum Need {
    /// Blocks of these groups of the root.
    Groups(Vec<u32>),
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
    pub searcher: Box<Searcher>,
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
    searcher: Box<Searcher>,
    phase: Phase,
    /// No leaf is left to scan.
    scanned: bool,
    wave: Vec<u32>,
    leaves: WaveLeaves,
    /// Blocks loaded for this wave: here whatever the cache does meanwhile.
    held: Vec<(u32, Arc<GroupBlocks>)>,
    vectors: RowVectors,
    /// The vectors were loaded for the rows that are being measured: what else these rows need is added to them.
    gathering: bool,
    rows: Vec<u64>,
    distances: Vec<f32>,
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
        searcher: Box<Searcher>,
    ) -> Self {
        let vectors = RowVectors::new(query.len());
        Self {
            view,
            position,
            query,
            params,
            searcher,
            phase: Phase::Begin,
            scanned: false,
            wave: Vec::new(),
            leaves: WaveLeaves::default(),
            held: Vec::new(),
            vectors,
            gathering: false,
            rows: Vec::new(),
            distances: Vec::new(),
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
        loop {
            match self.phase {
                Phase::Begin => {
                    self.searcher.begin(nav, &self.query, &self.params);
                    self.tail_rows = tail.rows_up_to(self.position) as u64;
                    if self.tail_rows > 0 {
                        let mean = view.tail.frame().mean();
                        self.searcher.scan_extra(nav, mean, &[tail.part()], &mask);
                    }
                    self.phase = Phase::Wave;
                }
                Phase::Wave => {
                    if self.wave.is_empty() {
                        self.wave.extend_from_slice(self.searcher.next_wave(nav));
                    }
                    let Some(root) = root.filter(|_| !self.wave.is_empty()) else {
                        (self.phase, self.scanned) = (Phase::Rerank, true);
                        continue;
                    };
                    if let Err(missing) = root.gather(&self.wave, &self.held, &mut self.leaves) {
                        return Need::Groups(missing);
                    }
                    let wave = WaveView { table: root.groups(), wave: &self.leaves };
                    self.searcher.scan_wave(nav, &wave, &mask);
                    self.wave.clear();
                    if self.searcher.should_rerank() {
                        self.phase = Phase::Rerank;
                    }
                }
                Phase::Rerank => {
                    if self.rows.is_empty() {
                        self.rows.extend_from_slice(self.searcher.next_rerank());
                    }
                    if self.rows.is_empty() && !self.scanned {
                        self.phase = Phase::Wave;
                        continue;
                    }
                    if self.rows.is_empty() {
                        self.phase = Phase::Rank;
                        self.rows.extend(self.searcher.finish().iter().map(|hit| hit.row));
                        continue;
                    }
                    match self.measure(root, &tail, nav) {
                        Need::Nothing => {}
                        need => return need,
                    }
                    self.searcher.feed_rerank(&self.distances);
                    self.rows.clear();
                    self.gathering = false;
                }
                Phase::Rank => {
                    return self.rank(root, &tail);
                }
            }
        }
    }

    /// Exact f32 distances of `self.rows` into `self.distances`, if all vectors are at hand.
    fn measure(&mut self, root: Option<&OpenRoot>, tail: &TailReader<'_>, nav: &Nav) -> Need {
        let mut missing = self.collect(root, tail);
        if !missing.is_empty() {
            // Storage is asked once for everything that the re-rank is likely to want.
            let wanted: Vec<u64> =
                self.searcher.candidates().iter().take(PREFETCH_ROWS).map(|c| c.row).collect();
            for row in wanted {
                missing.find(row, root, tail, &self.vectors);
            }
            return missing.need();
        }
        self.distances.clear();
        let frame = nav.frame();
        for (at, row) in self.rows.iter().enumerate() {
            if let (Some(root), Some(ahead)) = (root, self.rows.get(at + PREFETCH_AHEAD)) {
                root.prefetch(*ahead);
            }
            if let Some(vector) = missing.find(*row, root, tail, &self.vectors) {
                self.distances.push(frame.exact(self.searcher.prepared_query(), vector));
            }
        }
        missing.need()
    }

    /// Makes the vectors of `self.rows` readable as far as memory and cache have them; what is missing has to be loaded.
    fn collect(&mut self, root: Option<&OpenRoot>, tail: &TailReader<'_>) -> Missing {
        let mut missing = Missing::default();
        for row in &self.rows {
            if missing.find(*row, root, tail, &self.vectors).is_some()
                || missing.tail.last().is_some_and(|t| t.0 == *row)
            {
                continue;
            }
            // Damage is found again, and reported, by the load.
            if root.is_some_and(|root| root.copy_cached(*row, &mut self.vectors).unwrap_or(false)) {
                missing.vectors.pop();
            }
        }
        missing
    }

    /// f64 distances of the last rows.
    fn rank(&mut self, root: Option<&OpenRoot>, tail: &TailReader<'_>) -> Need {
        let missing = self.collect(root, tail);
        if !missing.is_empty() {
            return missing.need();
        }
        let exact =
            ExactQuery::new(self.view.tail.frame().kernels(), self.view.tail.frame().metric(), &self.query);
        let mut missing = Missing::default();
        self.ranked.clear();
        for row in &self.rows {
            if let Some(vector) = missing.find(*row, root, tail, &self.vectors) {
                self.ranked.push(Ranked { row: *row, distance: exact.distance(vector) });
            }
        }
        missing.need()
    }

    /// Takes blocks that were loaded for [`Need::Groups`].
    pub fn hold(&mut self, blocks: Vec<(u32, Arc<GroupBlocks>)>) {
        self.held = blocks;
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
    pub fn finish(self) -> Found {
        let counters = self.searcher.counters();
        Found { ranked: self.ranked, counters, tail_rows: self.tail_rows, searcher: self.searcher }
    }
}

/// Rows of candidates asked for in one read when storage has to be read at all.
const PREFETCH_ROWS: usize = 256;
/// Rows between the one being measured and the one whose vector is fetched ahead.
const PREFETCH_AHEAD: usize = 3;

/// What was not at hand.
#[derive(Default)]
struct Missing {
    vectors: Vec<u64>,
    tail: Vec<(u64, u32, u32)>,
}

impl Missing {
    fn is_empty(&self) -> bool {
        self.vectors.is_empty() && self.tail.is_empty()
    }

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
