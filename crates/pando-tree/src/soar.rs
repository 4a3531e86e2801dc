//! Second copies by the SOAR rule (Sun et al., "SOAR: Improved Indexing for Approximate Nearest Neighbor Search",
//! NeurIPS 2023): the secondary is chosen where its residual is not parallel to that of the primary, so that a query
//! that misses the one leaf meets the other.

use pando_kernels::Kernels;

use crate::error::TreeError;
use crate::rounds::{State, append};
use crate::routing::{Routed, route_rows};
use crate::space::is_zero_radius;
use crate::types::Stage;

/// Leaves among which a secondary is chosen.
const AMONG: usize = 24;
/// Weight of the parallel component.
const LAMBDA: f32 = 2.0;
/// Choices that a row may fall back on when its best leaf is full.
const CHOICES: usize = 3;

/// The residual of a row to its primary centroid.
pub(crate) struct Residual {
    vector: Vec<f32>,
    norm2: f32,
}

impl Residual {
    /// None when the row equals its centroid: then any query that is near finds the primary, and no direction is
    /// defined. Such rows get no secondary.
    pub fn new(k: &Kernels, row: &[f32], primary: &[f32]) -> Option<Self> {
        let vector: Vec<f32> = row.iter().zip(primary).map(|(x, c)| x - c).collect();
        let norm2 = k.norm2(&vector);
        (!is_zero_radius(norm2, k.norm2(primary))).then_some(Self { vector, norm2 })
    }

    /// d2^2 + lambda <r1/|r1|, x - c2>^2; lower is better.
    pub fn score(&self, k: &Kernels, row: &[f32], other: &[f32], scratch: &mut Vec<f32>) -> f32 {
        scratch.clear();
        scratch.extend(row.iter().zip(other).map(|(x, c)| x - c));
        let (along, distance) = k.dot_norm2(&self.vector, scratch);
        let score = distance + LAMBDA * (along * (along / self.norm2));
        if score.is_nan() { f32::INFINITY } else { score }
    }
}

/// The best leaves of a row, best first: scores and numbers of leaves in the routing, `NONE` where there are fewer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choices {
    scores: [f32; CHOICES],
    leaves: [u32; CHOICES],
}

const NONE: u32 = u32::MAX;

impl Choices {
    const EMPTY: Self = Self { scores: [f32::INFINITY; CHOICES], leaves: [NONE; CHOICES] };

    fn new(list: &[(f32, u32)]) -> Self {
        let mut out = Self::EMPTY;
        for (i, &(score, leaf)) in list.iter().take(CHOICES).enumerate() {
            (out.scores[i], out.leaves[i]) = (score, leaf);
        }
        out
    }
}

fn choices(k: &Kernels, row: &Routed<'_>, primary: u64, primary_vector: &[f32]) -> Choices {
    let (Some(leaves), Some(residual)) = (row.leaves, Residual::new(k, row.vector, primary_vector)) else {
        return Choices::EMPTY;
    };
    let mut scratch = Vec::new();
    let mut list: Vec<(f32, u32)> = Vec::with_capacity(AMONG + 1);
    for (rank, &(_, place)) in row.nearest.iter().enumerate() {
        if leaves.ids[place as usize] != primary {
            // A row that is not in its nearest leaf is copied there: a query that equals it looks there first.
            let score = match rank {
                0 => f32::NEG_INFINITY,
                _ => residual.score(k, row.vector, leaves.router.vector(place), &mut scratch),
            };
            list.push((score, leaves.base + place));
        }
    }
    list.truncate(AMONG);
    list.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    Choices::new(&list)
}

/// Gives rows to leaves of limited room: in turn every row asks for its next choice, every leaf takes the best by
/// (score, row). Returns (leaf number, row) of those that found a place, ascending.
pub(crate) fn place(rows: &[u64], choices: &[Choices], mut room: Vec<usize>) -> Vec<(u32, u64)> {
    let mut placed: Vec<(u32, u64)> = Vec::new();
    let mut open: Vec<u32> = (0..rows.len() as u32).collect();
    for turn in 0..CHOICES {
        let mut asks: Vec<(u32, f32, u32)> = open
            .iter()
            .map(|&i| (choices[i as usize].leaves[turn], choices[i as usize].scores[turn], i))
            .filter(|ask| ask.0 != NONE)
            .collect();
        asks.sort_unstable_by(|a, b| {
            a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(rows[a.2 as usize].cmp(&rows[b.2 as usize]))
        });
        open.clear();
        for (leaf, _, i) in asks {
            if room[leaf as usize] > 0 {
                room[leaf as usize] -= 1;
                placed.push((leaf, rows[i as usize]));
            } else {
                open.push(i);
            }
        }
    }
    placed.sort_unstable();
    placed
}

impl State<'_> {
    /// Room for secondaries in a leaf: as many as it has live primaries.
    pub fn room(&self, leaf: u64) -> usize {
        let held = self.tree.leaves.get(&leaf).map_or(0, |l| l.secondaries.len());
        self.size(leaf).saturating_sub(held)
    }

    /// Places secondaries for the rows that may lack one.
    pub fn place_secondaries(&mut self) -> Result<(), TreeError> {
        if self.cfg.copies < 2 || self.tree.leaves.len() < 2 {
            return Ok(());
        }
        let mut rows = std::mem::take(&mut self.unplaced);
        for leaf in self.tree.leaves.range(self.first_new..).map(|(_, leaf)| leaf) {
            rows.extend_from_slice(&leaf.primaries);
        }
        rows.sort_unstable();
        rows.dedup();
        let mut rows = self.alive(&rows);
        let have = self.locate(&rows, |leaf| &leaf.secondaries);
        let mut lacking = have.iter().map(|h| *h == u64::MAX);
        rows.retain(|_| lacking.next().unwrap_or(false));
        let primaries = self.locate(&rows, |leaf| &leaf.primaries);
        if let Some(i) = primaries.iter().position(|&p| p == u64::MAX) {
            return Err(TreeError::Broken(format!("row {} has no primary leaf", rows[i])));
        }
        let routing = self.routing()?;
        let space = self.space();
        let bands = &self.tree.params.bands;
        let keep = AMONG + 1;
        let choices =
            route_rows(&self.reader, &space, &routing, bands, &rows, keep, Stage::Secondaries, |row| {
                let primary = primaries[row.at];
                routing
                    .vector(primary)
                    .map_or(Choices::EMPTY, |vector| choices(&space.kernels, row, primary, vector))
            })?;
        let room = routing.ids.iter().map(|&id| self.room(id)).collect();
        let placed = place(&rows, &choices, room);
        self.report.secondaries_placed += placed.len() as u64;
        for part in placed.chunk_by(|a, b| a.0 == b.0) {
            let rows: Vec<u64> = part.iter().map(|p| p.1).collect();
            if let Some(leaf) = self.tree.leaves.get_mut(&routing.ids[part[0].0 as usize]) {
                append(leaf, &[], &rows);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_leaves_send_the_worse_rows_on() {
        let choices = [
            Choices::new(&[(1.0, 0), (2.0, 1)]),
            Choices::new(&[(0.5, 0), (3.0, 1)]),
            Choices::new(&[(1.0, 0)]),
        ];
        assert_eq!(place(&[10, 11, 12], &choices, vec![1, 5]), vec![(0, 11), (1, 10)]);
    }

    #[test]
    fn a_row_on_its_centroid_has_no_residual() {
        let k = Kernels::detect();
        assert!(Residual::new(&k, &[1.0, 2.0], &[1.0, 2.0]).is_none());
        let r = Residual::new(&k, &[1.0, 0.0], &[0.0, 0.0]).unwrap();
        let mut scratch = Vec::new();
        // Parallel residual of length 1: 1 + 2 * 1; orthogonal: 1.
        assert_eq!(r.score(&k, &[1.0, 0.0], &[2.0, 0.0], &mut scratch), 3.0);
        assert_eq!(r.score(&k, &[1.0, 0.0], &[1.0, 1.0], &mut scratch), 1.0);
    }
}
