//! Exact distances in the order of the estimates, until no other row can be among the first k.

use super::candidates::{CandidateSet, beyond, kth_smallest};

/// A row with its exact distance, in f32 and in prepared space (see [`super::Frame::exact`]).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hit {
    /// Row number.
    pub row: u64,
    /// Exact distance but for the rounding of f32.
    pub distance: f32,
    /// Its place among all rows that were measured for this query.
    pub place: u32,
}

/// State of the re-ranking of one query.
#[derive(Default)]
pub(crate) struct Rerank {
    k: usize,
    /// The candidates are sorted and `next` is a place among them.
    running: bool,
    next: usize,
    batch: Vec<u64>,
    hits: Vec<Hit>,
    /// The k-th smallest exact distance so far.
    kth: f32,
    scratch: Vec<u32>,
    pub(crate) measured: u64,
}

impl Rerank {
    pub(crate) fn begin(&mut self, k: usize) {
        self.k = k;
        (self.running, self.next, self.measured) = (false, 0, 0);
        self.kth = f32::INFINITY;
        self.batch.clear();
        self.hits.clear();
    }

    /// Sorts the candidates that are not beyond `threshold`, once.
    pub(crate) fn start(&mut self, candidates: &mut CandidateSet, threshold: f32) {
        if !self.running {
            candidates.sort(threshold);
            (self.running, self.next) = (true, 0);
        }
    }

    /// The next rows to measure; none when the others are ruled out. `margin` covers the rounding of the k-th.
    pub(crate) fn next(&mut self, candidates: &mut CandidateSet, threshold: f32, margin: f32) -> &[u64] {
        self.start(candidates, threshold);
        // Nearly always k rows and a few more are needed.
        let size = if self.hits.is_empty() { self.k + self.k / 8 + 2 } else { (self.k / 8).clamp(8, 256) };
        let limit = self.kth + margin;
        self.batch.clear();
        let rest = &candidates.list()[self.next..];
        for c in rest {
            if self.batch.len() == size {
                break;
            }
            self.next += 1;
            if !beyond(c.lower, limit) {
                self.batch.push(c.row);
            }
        }
        &self.batch
    }

    /// Takes the distances of the batch.
    pub(crate) fn feed(&mut self, distances: &[f32]) {
        assert_eq!(distances.len(), self.batch.len(), "one distance for each row of the batch");
        let places = self.measured as u32..;
        self.measured += distances.len() as u64;
        let measured = self.batch.iter().zip(distances).zip(places);
        self.hits.extend(measured.map(|((&row, &distance), place)| Hit { row, distance, place }));
        self.batch.clear();
        self.kth = kth_smallest(&mut self.scratch, self.hits.iter().map(|h| h.distance), self.k);
    }

    /// The k-th smallest exact distance, infinity if fewer rows were measured.
    pub(crate) fn kth(&self) -> f32 {
        self.kth
    }

    /// Rows measured that may still be among the first k.
    pub(crate) fn hits(&self) -> &[Hit] {
        &self.hits
    }

    /// Goes back to scanning, if measuring had begun: what was not measured stays a candidate.
    pub(crate) fn pause(&mut self, candidates: &mut CandidateSet, margin: f32) {
        if self.running {
            let limit = self.kth + margin;
            self.hits.retain(|h| !beyond(h.distance, limit));
            candidates.restart(self.next, self.hits.iter().map(|h| h.row));
            (self.running, self.next) = (false, 0);
        }
    }

    /// The rows that may be among the first k, by (distance, row).
    pub(crate) fn finish(&mut self, margin: f32) -> &[Hit] {
        let limit = self.kth + margin;
        self.hits.retain(|h| !beyond(h.distance, limit));
        self.hits.sort_unstable_by(|a, b| a.distance.total_cmp(&b.distance).then(a.row.cmp(&b.row)));
        &self.hits
    }
}
