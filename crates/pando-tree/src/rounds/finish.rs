//! The end of a checkpoint: secondaries, groups, inner nodes, report.

use pando_kernels::Metric;
use std::collections::BTreeMap;

use super::state::State;
use crate::check::INNER_MAX;
use crate::cluster::KMeans;
use crate::error::TreeError;
use crate::hashing::hash;
use crate::nodes::{Children, GROUP, INNER, Limits, Node, center, one_per_band, regroup};
use crate::types::{Change, Group, Inner, Report, Stage, Top, Tree};

/// A leaf, group or inner node, as the level above sees it. Lists of these are ascending by id.
struct Child {
    id: u64,
    band: u8,
    /// Prepared space.
    centroid: Vec<f32>,
    /// Live rows.
    weight: u64,
    changed: bool,
    recoded: bool,
    /// The node of the parent tree that a new node was split from.
    origin: Option<u64>,
}

/// A node of the parent tree.
struct Old {
    id: u64,
    children: Vec<u64>,
    centroid: Vec<f32>,
}

impl State<'_> {
    /// Places secondaries, settles the nodes above the leaves and hands the tree over.
    pub fn finish(mut self) -> Result<(Tree, Report), TreeError> {
        self.place_secondaries()?;
        self.reader.env.report(Stage::Nodes, 0, self.tree.leaves.len() as u64);
        let groups = self.settle_groups()?;
        self.settle_inners(groups)?;
        let mut report = self.report;
        if !self.dead.is_empty() {
            for leaf in self.tree.leaves.values() {
                let dead = |row: &&u64| self.dead.contains(**row);
                report.dead_primaries.extend(leaf.primaries.iter().filter(dead));
                report.dead_secondaries.extend(leaf.secondaries.iter().filter(dead));
            }
            report.dead_primaries.sort_unstable();
            report.dead_secondaries.sort_unstable();
        }
        report.live = self.tree.leaves.keys().map(|id| u64::from(self.live[id])).sum();
        Ok((self.tree, report))
    }

    fn settle_groups(&mut self) -> Result<Vec<Child>, TreeError> {
        let leaves: Vec<Child> = self
            .tree
            .leaves
            .values()
            .map(|leaf| Child {
                id: leaf.id,
                band: leaf.band,
                centroid: leaf.centroid.clone(),
                weight: self.size(leaf.id) as u64,
                changed: leaf.change != Change::Clean,
                recoded: leaf.change == Change::Rewritten,
                origin: None,
            })
            .collect();
        let old = std::mem::take(&mut self.tree.groups)
            .into_values()
            .map(|g| Old { id: g.id, children: g.leaves, centroid: g.centroid })
            .collect();
        let (nodes, lists) = self.settle(1, &leaves, old, GROUP)?;
        for (node, leaves) in nodes.iter().zip(lists) {
            let Child { id, changed, recoded, .. } = *node;
            self.tree
                .groups
                .insert(id, Group { id, leaves, centroid: node.centroid.clone(), changed, recoded });
        }
        Ok(nodes)
    }

    /// Grows and shrinks the levels above the groups and sets the root.
    fn settle_inners(&mut self, mut below: Vec<Child>) -> Result<(), TreeError> {
        let mut old = std::mem::take(&mut self.tree.inners);
        let mut level = 2u8;
        loop {
            let here: Vec<Old> = old
                .extract_if(.., |_, inner| inner.level == level)
                .map(|(id, inner)| Old { id, children: inner.children, centroid: inner.centroid })
                .collect();
            // A level appears over 64 nodes and goes at 48, so that the root does not flicker.
            if below.len() <= if here.is_empty() { INNER_MAX } else { INNER.target } {
                break;
            }
            let (nodes, lists) = self.settle(level, &below, here, INNER)?;
            for (node, children) in nodes.iter().zip(lists) {
                let Child { id, changed, recoded, .. } = *node;
                let centroid = node.centroid.clone();
                self.tree.inners.insert(id, Inner { id, level, children, centroid, changed, recoded });
            }
            below = nodes;
            level += 1;
        }
        self.tree.top = Top { child_level: level - 1, children: below.iter().map(|n| n.id).collect() };
        Ok(())
    }

    /// Regroups one level. Returns its nodes ascending by id and their children's ids.
    fn settle(
        &mut self,
        level: u8,
        below: &[Child],
        old: Vec<Old>,
        limits: Limits,
    ) -> Result<(Vec<Child>, Vec<Vec<u64>>), TreeError> {
        let d = self.cfg.dim;
        let mut vectors = vec![0f32; below.len() * d];
        let space = self.space();
        for (child, v) in below.iter().zip(vectors.chunks_exact_mut(d)) {
            space.route(&child.centroid, v);
        }
        let bands: Vec<u8> = below.iter().map(|c| c.band).collect();
        let how = KMeans {
            kernels: space.kernels,
            dim: d,
            spherical: space.metric == Metric::Dot,
            iterations: 8,
            seed: hash(&[self.cfg.seed, 50, u64::from(level), self.tree.next_id]),
        };
        let nodes = assemble(&how, below, &vectors, &old);
        let nodes = regroup(&how, &Children { vectors: &vectors, bands: &bands }, nodes, limits)?;
        let centroids: BTreeMap<u64, Vec<f32>> = old.into_iter().map(|o| (o.id, o.centroid)).collect();
        let mut out: Vec<(Child, Vec<u64>)> = Vec::with_capacity(nodes.len());
        for node in nodes {
            let members: Vec<&Child> = node.members.iter().map(|&m| &below[m as usize]).collect();
            let children: Vec<u64> = members.iter().map(|c| c.id).collect();
            let same = node.id.is_some_and(|id| self.parents.get(&id) == Some(&children));
            let recoded = !same || members.iter().any(|c| c.recoded);
            let changed = recoded || members.iter().any(|c| c.changed);
            let id = node.id.unwrap_or_else(|| self.next_id());
            let kept = if recoded { None } else { centroids.get(&id).cloned() };
            let centroid = kept.unwrap_or_else(|| weighted_mean(&members, d));
            let weight = members.iter().map(|c| c.weight).sum();
            let origin = if node.id.is_some() { None } else { node.origin };
            out.push((
                Child { id, band: members[0].band, centroid, weight, changed, recoded, origin },
                children,
            ));
        }
        out.sort_unstable_by_key(|(child, _)| child.id);
        Ok(out.into_iter().unzip())
    }
}

/// The parent's nodes with the children that are left, and new children where their origin was, else with the
/// nearest node of their band.
fn assemble(how: &KMeans, below: &[Child], vectors: &[f32], old: &[Old]) -> Vec<Node> {
    if old.is_empty() {
        let bands: Vec<u8> = below.iter().map(|c| c.band).collect();
        return one_per_band(&bands);
    }
    let d = how.dim;
    let mut home: BTreeMap<u64, usize> = BTreeMap::new();
    for (i, node) in old.iter().enumerate() {
        home.extend(node.children.iter().map(|&child| (child, i)));
    }
    let mut nodes: Vec<Node> = old.iter().map(|o| Node::new(Some(o.id), Vec::new())).collect();
    let mut orphans: Vec<u32> = Vec::new();
    for (place, child) in below.iter().enumerate() {
        let at = home.get(&child.id).or_else(|| child.origin.as_ref().and_then(|o| home.get(o)));
        match at {
            Some(&i) => nodes[i].members.push(place as u32),
            None => orphans.push(place as u32),
        }
    }
    nodes.retain(|n| !n.members.is_empty());
    let mut centers: Vec<Vec<f32>> = nodes.iter().map(|n| center(vectors, &n.members, d)).collect();
    for orphan in orphans {
        let v = &vectors[orphan as usize * d..][..d];
        let band = below[orphan as usize].band;
        let mut best: Option<(f32, usize)> = None;
        for (i, node) in nodes.iter().enumerate().filter(|(_, n)| below[n.members[0] as usize].band == band) {
            let _ = node;
            let distance = how.kernels.l2(v, &centers[i]);
            if best.is_none_or(|(b, _)| distance < b) {
                best = Some((distance, i));
            }
        }
        if let Some((_, i)) = best {
            nodes[i].members.push(orphan);
            nodes[i].members.sort_unstable();
        } else {
            nodes.push(Node::new(None, vec![orphan]));
            centers.push(v.to_vec());
        }
    }
    nodes
}

/// Mean of the children's centroids weighted by their live rows.
fn weighted_mean(members: &[&Child], d: usize) -> Vec<f32> {
    let mut sum = vec![0f64; d];
    let mut total = 0f64;
    for child in members {
        let weight = child.weight.max(1) as f64;
        total += weight;
        for (s, c) in sum.iter_mut().zip(&child.centroid) {
            *s += weight * f64::from(*c);
        }
    }
    sum.iter().map(|s| (s / total) as f32).collect()
}
