//! Carries a round out: every moved row leaves its source and enters its destination in one step.

use std::collections::{BTreeMap, BTreeSet};

use rayon::prelude::*;

use super::resolve::Round;
use super::state::{State, append, remove_sorted};
use crate::error::TreeError;
use crate::soar::Residual;
use crate::types::{Change, Leaf};

/// Secondaries of a split leaf and the parts they are shared out to.
struct Inheritance {
    parts: Vec<u64>,
    rows: Vec<u64>,
}

impl State<'_> {
    /// Applies a round. Afterwards every rewritten leaf has a fresh centroid and no dead rows.
    pub fn apply(&mut self, mut round: Round) -> Result<(), TreeError> {
        let mut rewritten: BTreeSet<u64> = BTreeSet::new();
        self.mark_whole(&round.whole);
        let (inheritances, home) = self.apply_splits(&mut round, &mut rewritten);
        for &id in &round.merges {
            if let Some(leaf) = self.tree.leaves.remove(&id) {
                self.unplaced.extend(self.alive(&leaf.secondaries));
                self.live.remove(&id);
            }
        }
        self.report.merges += round.merges.len() as u64;
        for (id, rows) in &round.leaves {
            if let Some(leaf) = self.tree.leaves.get_mut(id) {
                remove_sorted(&mut leaf.primaries, rows);
                leaf.whole = false;
                *self.live.entry(*id).or_insert(0) -= rows.len() as u32;
                rewritten.insert(*id);
            }
        }
        for (id, rows) in &round.enters {
            self.enter(*id, rows, &mut rewritten)?;
        }
        self.report.splits += round.splits.len() as u64;
        self.regroup_parts(&round, &home);
        // A part may have lost all its rows to neighbours.
        self.remove_empty();
        let rewritten: Vec<u64> =
            rewritten.into_iter().filter(|id| self.tree.leaves.contains_key(id)).collect();
        self.refresh(&rewritten)?;
        self.inherit(inheritances)
    }

    fn mark_whole(&mut self, ids: &[u64]) {
        for id in ids {
            if let Some(leaf) = self.tree.leaves.get_mut(id) {
                leaf.whole = true;
                // The flag is stored with the leaf: it must not look untouched.
                append(leaf, &[], &[]);
            }
        }
    }

    /// Replaces split leaves by their parts. Returns the secondaries to share out and the group of each split leaf.
    fn apply_splits(
        &mut self,
        round: &mut Round,
        rewritten: &mut BTreeSet<u64>,
    ) -> (Vec<Inheritance>, BTreeMap<u64, u64>) {
        let mut home: BTreeMap<u64, u64> = BTreeMap::new();
        if !round.splits.is_empty() {
            for group in self.tree.groups.values() {
                home.extend(group.leaves.iter().map(|&leaf| (leaf, group.id)));
            }
        }
        let mut inheritances = Vec::new();
        for (id, parts) in &mut round.splits {
            let Some(old) = self.tree.leaves.remove(id) else { continue };
            self.live.remove(id);
            let rows = self.alive(&old.secondaries);
            if !rows.is_empty() {
                inheritances.push(Inheritance { parts: parts.iter().map(|p| p.0).collect(), rows });
            }
            for (id, rows) in parts.iter_mut() {
                self.live.insert(*id, rows.len() as u32);
                let leaf = Leaf {
                    id: *id,
                    band: old.band,
                    whole: false,
                    centroid: old.centroid.clone(),
                    r2: 0.0,
                    primaries: std::mem::take(rows),
                    secondaries: Vec::new(),
                    change: Change::Rewritten,
                };
                self.tree.leaves.insert(*id, leaf);
                rewritten.insert(*id);
            }
        }
        (inheritances, home)
    }

    fn enter(&mut self, id: u64, rows: &[u64], rewritten: &mut BTreeSet<u64>) -> Result<(), TreeError> {
        let Some(leaf) = self.tree.leaves.get_mut(&id) else {
            return Err(TreeError::Broken(format!("rows move to leaf {id} that does not exist")));
        };
        append(leaf, rows, &[]);
        leaf.whole = false;
        *self.live.entry(id).or_insert(0) += rows.len() as u32;
        // Here they were secondaries before: a row is never both in one leaf.
        let both: Vec<u64> =
            rows.iter().copied().filter(|row| leaf.secondaries.binary_search(row).is_ok()).collect();
        if !both.is_empty() {
            remove_sorted(&mut leaf.secondaries, &both);
            rewritten.insert(id);
        }
        if leaf.change == Change::Rewritten {
            rewritten.insert(id);
        }
        self.report.moved += rows.len() as u64;
        self.unplaced.extend_from_slice(rows);
        Ok(())
    }

    /// Parts join the group of the leaf they come from; dissolved leaves go.
    fn regroup_parts(&mut self, round: &Round, home: &BTreeMap<u64, u64>) {
        let mut gone = round.merges.clone();
        gone.extend(round.splits.iter().map(|s| s.0));
        gone.sort_unstable();
        self.forget(&gone);
        for (id, parts) in &round.splits {
            if let Some(group) = home.get(id).and_then(|g| self.tree.groups.get_mut(g)) {
                group.leaves.extend(parts.iter().map(|p| p.0));
                group.leaves.sort_unstable();
            }
        }
    }

    /// Shares the secondaries of split leaves out to the parts by the SOAR rule, as far as there is room.
    fn inherit(&mut self, inheritances: Vec<Inheritance>) -> Result<(), TreeError> {
        let mut all: Vec<u64> = inheritances.iter().flat_map(|i| i.rows.iter().copied()).collect();
        all.sort_unstable();
        let primaries = self.locate(&all, |leaf| &leaf.primaries);
        let shared: Vec<Vec<(u64, f32, u64)>> = inheritances
            .par_iter()
            .map(|inheritance| self.share_out(inheritance, &all, &primaries))
            .collect::<Result<_, _>>()?;
        let mut found: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for (inheritance, mut shared) in inheritances.iter().zip(shared) {
            shared.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2)));
            let mut kept: Vec<u64> = Vec::new();
            for part in shared.chunk_by(|a, b| a.0 == b.0) {
                let rows: Vec<u64> = part.iter().take(self.size(part[0].0)).map(|s| s.2).collect();
                kept.extend_from_slice(&rows);
                found.insert(part[0].0, rows);
            }
            kept.sort_unstable();
            self.unplaced.extend(inheritance.rows.iter().filter(|row| kept.binary_search(row).is_err()));
        }
        for (id, rows) in found {
            if let Some(leaf) = self.tree.leaves.get_mut(&id) {
                append(leaf, &[], &rows);
            }
        }
        Ok(())
    }

    /// (part, score, row) of every row that has a part other than its primary leaf.
    fn share_out(
        &self,
        inheritance: &Inheritance,
        all: &[u64],
        primaries: &[u64],
    ) -> Result<Vec<(u64, f32, u64)>, TreeError> {
        let (space, d) = (self.space(), self.cfg.dim);
        let k = space.kernels;
        let route = |id: u64| -> Option<Vec<f32>> {
            let mut v = vec![0f32; d];
            space.route(&self.tree.leaves.get(&id)?.centroid, &mut v);
            Some(v)
        };
        let parts: Vec<(u64, Vec<f32>)> =
            inheritance.parts.iter().filter_map(|&id| route(id).map(|v| (id, v))).collect();
        let (mut out, mut scratch, mut u) = (Vec::new(), Vec::new(), vec![0f32; d]);
        self.reader.batches(&inheritance.rows, |first, prepared| {
            for (i, p) in prepared.chunks_exact(d).enumerate() {
                let row = inheritance.rows[first + i];
                let Some(primary) = all.binary_search(&row).ok().map(|at| primaries[at]) else { continue };
                let Some(vector) = route(primary) else { continue };
                space.route(p, &mut u);
                let Some(residual) = Residual::new(&k, &u, &vector) else { continue };
                let mut best: Option<(f32, u64)> = None;
                for (id, v) in parts.iter().filter(|part| part.0 != primary) {
                    let score = residual.score(&k, &u, v, &mut scratch);
                    if best.is_none_or(|(b, _)| score < b) {
                        best = Some((score, *id));
                    }
                }
                out.extend(best.map(|(score, id)| (id, score, row)));
            }
            Ok(())
        })?;
        Ok(out)
    }
}
