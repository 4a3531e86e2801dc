//! New rows go to their nearest leaves on the frozen tree.

use super::state::{State, append};
use crate::error::TreeError;
use crate::routing::route_rows;
use crate::space::is_zero_radius;
use crate::types::{Change, Group, Leaf, Stage};

/// Candidates by dot product that are compared exactly.
const EXACT: usize = 4;

/// Where a row goes.
#[derive(Clone, Copy)]
struct Target {
    band: u8,
    leaf: Option<u64>,
    /// The row equals the leaf's centroid.
    equal: bool,
}

impl State<'_> {
    /// Adds rows (ascending, live, in no leaf yet).
    pub fn add(&mut self, rows: &[u64]) -> Result<(), TreeError> {
        if rows.is_empty() {
            return Ok(());
        }
        let routing = self.routing()?;
        let space = self.space();
        let bands = &self.tree.params.bands;
        let targets = route_rows(&self.reader, &space, &routing, bands, rows, EXACT, Stage::Route, |row| {
            let (Some(leaves), Some(&(distance, place))) = (row.leaves, row.nearest.first()) else {
                return Target { band: row.band, leaf: None, equal: false };
            };
            let norm2 = space.kernels.norm2(leaves.router.vector(place));
            let equal = is_zero_radius(distance, norm2);
            Target { band: row.band, leaf: Some(leaves.ids[place as usize]), equal }
        })?;
        // A band without leaves gets one; the rounds split it.
        let mut fresh: Vec<u64> = Vec::new();
        let mut by_leaf: Vec<(u64, u64, bool)> = Vec::with_capacity(rows.len());
        let mut orphans: Vec<Vec<u64>> = vec![Vec::new(); self.tree.params.bands.len() + 1];
        for (&row, target) in rows.iter().zip(&targets) {
            match target.leaf {
                Some(leaf) => by_leaf.push((leaf, row, target.equal)),
                None => orphans[usize::from(target.band)].push(row),
            }
        }
        by_leaf.sort_unstable();
        for part in by_leaf.chunk_by(|a, b| a.0 == b.0) {
            let id = part[0].0;
            let rows: Vec<u64> = part.iter().map(|p| p.1).collect();
            let equal = part.iter().all(|p| p.2);
            let Some(leaf) = self.tree.leaves.get_mut(&id) else { continue };
            append(leaf, &rows, &[]);
            leaf.whole &= equal;
            *self.live.entry(id).or_insert(0) += rows.len() as u32;
        }
        for (band, rows) in orphans.into_iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
            fresh.push(self.plant(band as u8, rows));
        }
        self.refresh(&fresh)?;
        self.unplaced.extend_from_slice(rows);
        self.report.added += rows.len() as u64;
        Ok(())
    }

    /// A new leaf in a new group; its numbers are still to be computed.
    fn plant(&mut self, band: u8, rows: Vec<u64>) -> u64 {
        let id = self.next_id();
        let group = self.next_id();
        let d = self.cfg.dim;
        self.live.insert(id, rows.len() as u32);
        let leaf = Leaf {
            id,
            band,
            whole: false,
            centroid: vec![0f32; d],
            r2: 0.0,
            primaries: rows,
            secondaries: Vec::new(),
            change: Change::Rewritten,
        };
        self.tree.leaves.insert(id, leaf);
        let leaves = vec![id];
        self.tree.groups.insert(
            group,
            Group { id: group, leaves, centroid: vec![0f32; d], changed: true, recoded: true },
        );
        id
    }
}
