//! The tree while a checkpoint works on it.

use std::collections::BTreeMap;

use rayon::prelude::*;

use crate::cluster::{add, mean_of};
use crate::error::TreeError;
use crate::reader::Reader;
use crate::routing::Routing;
use crate::space::Space;
use crate::types::{Change, Leaf, Report, RowSet, Tree, TreeConfig};

/// Rows of one leaf that a task holds in memory at once: 16 MiB of f32, at least 512 rows, at most 8,192.
pub(crate) fn rows_in_hand(dim: usize) -> usize {
    ((1usize << 22) / dim).clamp(512, 8192)
}

/// A tree, its surroundings and what has happened so far.
pub(crate) struct State<'a> {
    pub cfg: &'a TreeConfig,
    pub reader: Reader<'a>,
    pub dead: &'a dyn RowSet,
    pub tree: Tree,
    /// Live primaries of every leaf.
    pub live: BTreeMap<u64, u32>,
    /// Rows that may have no secondary and should have one: new, moved, split off, or expelled. Any order, may repeat.
    pub unplaced: Vec<u64>,
    /// Leaves with this id or a later one are new in this checkpoint.
    pub first_new: u64,
    /// Lists of the parent's groups and inner nodes, to see what changed.
    pub parents: BTreeMap<u64, Vec<u64>>,
    pub report: Report,
}

impl<'a> State<'a> {
    pub fn new(cfg: &'a TreeConfig, reader: Reader<'a>, dead: &'a dyn RowSet, tree: Tree) -> Self {
        let leaves: Vec<&Leaf> = tree.leaves.values().collect();
        let counts: Vec<u32> = leaves.par_iter().map(|leaf| count_live(dead, &leaf.primaries)).collect();
        let live = leaves.iter().map(|leaf| leaf.id).zip(counts).collect();
        let mut parents: BTreeMap<u64, Vec<u64>> =
            tree.groups.values().map(|g| (g.id, g.leaves.clone())).collect();
        parents.extend(tree.inners.values().map(|i| (i.id, i.children.clone())));
        let first_new = tree.next_id;
        Self {
            cfg,
            reader,
            dead,
            tree,
            live,
            unplaced: Vec::new(),
            first_new,
            parents,
            report: Report::default(),
        }
    }

    /// Prepared and routing space of this tree.
    pub fn space(&self) -> Space<'_> {
        Space {
            dim: self.cfg.dim,
            metric: self.cfg.metric,
            kernels: self.reader.env.kernels,
            mean: &self.tree.params.mean,
        }
    }

    /// Freezes the present leaves for routing.
    pub fn routing(&self) -> Result<Routing, TreeError> {
        Routing::new(&self.tree, &self.space(), self.cfg.seed)
    }

    /// Live primaries of a leaf.
    pub fn size(&self, leaf: u64) -> usize {
        self.live.get(&leaf).copied().unwrap_or(0) as usize
    }

    /// The leaf with this id.
    pub fn leaf(&self, id: u64) -> Result<&Leaf, TreeError> {
        self.tree.leaves.get(&id).ok_or_else(|| TreeError::Broken(format!("leaf {id} does not exist")))
    }

    /// The live ones of some rows, in their order.
    pub fn alive(&self, rows: &[u64]) -> Vec<u64> {
        rows.iter().copied().filter(|&row| !self.dead.contains(row)).collect()
    }

    /// Gives out the next id.
    pub fn next_id(&mut self) -> u64 {
        let id = self.tree.next_id;
        self.tree.next_id += 1;
        id
    }

    /// Rewrites leaves: drops their dead rows, computes centroid and r2 anew. They must have live primaries.
    pub fn refresh(&mut self, ids: &[u64]) -> Result<(), TreeError> {
        let fresh: Vec<Fresh> = ids.par_iter().map(|&id| self.fresh(id)).collect::<Result<_, _>>()?;
        for (&id, fresh) in ids.iter().zip(fresh) {
            self.live.insert(id, fresh.primaries.len() as u32);
            let Some(leaf) = self.tree.leaves.get_mut(&id) else { continue };
            leaf.primaries = fresh.primaries;
            leaf.secondaries = fresh.secondaries;
            leaf.centroid = fresh.centroid;
            leaf.r2 = fresh.r2;
            leaf.change = Change::Rewritten;
        }
        Ok(())
    }

    fn fresh(&self, id: u64) -> Result<Fresh, TreeError> {
        let leaf = self.leaf(id)?;
        let primaries = self.alive(&leaf.primaries);
        if primaries.is_empty() {
            return Err(TreeError::Broken(format!("leaf {id} has no live rows")));
        }
        let (d, k) = (self.cfg.dim, self.reader.env.kernels);
        let mut sum = vec![0f64; d];
        let mut centroid = vec![0f32; d];
        let mut radius = 0f64;
        let measure = |centroid: &[f32], vectors: &[f32], radius: &mut f64| {
            for x in vectors.chunks_exact(d) {
                *radius += f64::from(k.l2(x, centroid).min(f32::MAX));
            }
        };
        if primaries.len() <= rows_in_hand(d) {
            let mut vectors = vec![0f32; primaries.len() * d];
            self.reader.read(&primaries, &mut vectors)?;
            vectors.chunks_exact(d).for_each(|x| add(&mut sum, x));
            mean_of(&sum, primaries.len(), &mut centroid);
            measure(&centroid, &vectors, &mut radius);
        } else {
            self.reader.batches(&primaries, |_, vectors| {
                vectors.chunks_exact(d).for_each(|x| add(&mut sum, x));
                Ok(())
            })?;
            mean_of(&sum, primaries.len(), &mut centroid);
            self.reader.batches(&primaries, |_, vectors| {
                measure(&centroid, vectors, &mut radius);
                Ok(())
            })?;
        }
        let r2 = (radius / primaries.len() as f64) as f32;
        Ok(Fresh { primaries, secondaries: self.alive(&leaf.secondaries), centroid, r2: r2.min(f32::MAX) })
    }

    /// Removes leaves without live primaries; their live secondaries look for a new place.
    pub fn remove_empty(&mut self) {
        let empty: Vec<u64> = self.tree.leaves.keys().copied().filter(|&id| self.size(id) == 0).collect();
        self.report.removed += empty.len() as u64;
        for &id in &empty {
            if let Some(leaf) = self.tree.leaves.remove(&id) {
                self.unplaced.extend(self.alive(&leaf.secondaries));
            }
            self.live.remove(&id);
        }
        self.forget(&empty);
    }

    /// Takes leaves (ascending ids) out of the groups' lists.
    pub fn forget(&mut self, gone: &[u64]) {
        if gone.is_empty() {
            return;
        }
        for group in self.tree.groups.values_mut() {
            group.leaves.retain(|id| gone.binary_search(id).is_err());
        }
    }
}

/// Live rows among some rows.
fn count_live(dead: &dyn RowSet, rows: &[u64]) -> u32 {
    if dead.is_empty() {
        return rows.len() as u32;
    }
    rows.iter().filter(|&&row| !dead.contains(row)).count() as u32
}

/// A leaf's lists and numbers after a rewrite.
struct Fresh {
    primaries: Vec<u64>,
    secondaries: Vec<u64>,
    centroid: Vec<f32>,
    r2: f32,
}

/// Merges new rows into a leaf's lists and marks the leaf.
pub(crate) fn append(leaf: &mut Leaf, primaries: &[u64], secondaries: &[u64]) {
    merge_sorted(&mut leaf.primaries, primaries);
    merge_sorted(&mut leaf.secondaries, secondaries);
    match &mut leaf.change {
        Change::Rewritten => {}
        Change::Appended { primaries: p, secondaries: s } => {
            merge_sorted(p, primaries);
            merge_sorted(s, secondaries);
        }
        change @ Change::Clean => {
            *change = Change::Appended { primaries: Vec::new(), secondaries: Vec::new() };
            if let Change::Appended { primaries: p, secondaries: s } = change {
                merge_sorted(p, primaries);
                merge_sorted(s, secondaries);
            }
        }
    }
}

/// Adds `more` (any order) to an ascending list.
pub(crate) fn merge_sorted(list: &mut Vec<u64>, more: &[u64]) {
    if !more.is_empty() {
        list.extend_from_slice(more);
        list.sort_unstable();
    }
}

/// Takes the rows of `gone` (ascending) out of a list.
pub(crate) fn remove_sorted(list: &mut Vec<u64>, gone: &[u64]) {
    list.retain(|row| gone.binary_search(row).is_err());
}
