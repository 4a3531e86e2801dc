//! The invariants of a tree (law 4 and its shape), checked without vectors.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::TreeError;
use crate::fingerprint::fingerprint;
use crate::types::{Change, Leaf, RowSet, Tree, TreeConfig};

/// Most leaves in a group.
pub(crate) const GROUP_MAX: usize = 32;
/// Most children of an inner node, and of the root.
pub(crate) const INNER_MAX: usize = 64;

/// Sums over all leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Live primaries.
    pub live: u64,
    /// Their fingerprint.
    pub live_fp: u128,
    /// Dead rows that are still primaries.
    pub dead_primaries: u64,
    /// Their fingerprint: the primaries' sum is `live_fp + dead_primaries_fp`.
    pub dead_primaries_fp: u128,
    /// Live secondaries.
    pub secondaries: u64,
    /// Their fingerprint.
    pub secondaries_fp: u128,
    /// Dead rows that are still secondaries.
    pub dead_secondaries: u64,
    /// Their fingerprint.
    pub dead_secondaries_fp: u128,
}

/// Sums the fingerprints of all leaves.
pub fn totals(tree: &Tree, dead: &dyn RowSet) -> Totals {
    let mut t = Totals::default();
    for leaf in tree.leaves.values() {
        for &row in &leaf.primaries {
            let fp = fingerprint(row);
            let (n, sum) = if dead.contains(row) {
                (&mut t.dead_primaries, &mut t.dead_primaries_fp)
            } else {
                (&mut t.live, &mut t.live_fp)
            };
            *n += 1;
            *sum = sum.wrapping_add(fp);
        }
        for &row in &leaf.secondaries {
            let fp = fingerprint(row);
            let (n, sum) = if dead.contains(row) {
                (&mut t.dead_secondaries, &mut t.dead_secondaries_fp)
            } else {
                (&mut t.secondaries, &mut t.secondaries_fp)
            };
            *n += 1;
            *sum = sum.wrapping_add(fp);
        }
    }
    t
}

/// Checks every invariant that can be checked without vectors and returns the totals.
///
/// Every live row is the primary of exactly one leaf and the secondary of at most one other; no dead row is twice in
/// either role; lists are ascending; every secondary that is live has a primary; every leaf is in exactly one group,
/// every node has exactly one parent, sizes of nodes are in range, bands do not mix below the root, numbers are
/// finite. Leaf sizes are not checked (what eight rounds leave over is legal). Memory: two words a row.
pub fn check(cfg: &TreeConfig, tree: &Tree, dead: &dyn RowSet) -> Result<Totals, TreeError> {
    let mut primaries: Vec<(u64, u64)> = Vec::new();
    let mut secondaries: Vec<(u64, u64)> = Vec::new();
    for (&id, leaf) in &tree.leaves {
        check_leaf(cfg, tree, id, leaf)?;
        primaries.extend(leaf.primaries.iter().map(|&row| (row, id)));
        secondaries.extend(leaf.secondaries.iter().map(|&row| (row, id)));
    }
    primaries.sort_unstable();
    secondaries.sort_unstable();
    for (list, role) in [(&primaries, "primary"), (&secondaries, "secondary")] {
        if let Some(w) = list.windows(2).find(|w| w[0].0 == w[1].0) {
            return broken(format!("row {} is {role} of leaves {} and {}", w[0].0, w[0].1, w[1].1));
        }
    }
    let mut at = 0;
    for &(row, leaf) in &secondaries {
        while at < primaries.len() && primaries[at].0 < row {
            at += 1;
        }
        match primaries.get(at) {
            Some(&(r, p)) if r == row => {
                if p == leaf {
                    return broken(format!("row {row} is primary and secondary of leaf {leaf}"));
                }
            }
            _ if dead.contains(row) => {}
            _ => return broken(format!("row {row} is a live secondary of leaf {leaf} without a primary")),
        }
    }
    if cfg.copies < 2 && !secondaries.is_empty() {
        return broken("secondaries in a collection of one copy".into());
    }
    check_nodes(cfg, tree)?;
    Ok(totals(tree, dead))
}

fn broken<T>(what: String) -> Result<T, TreeError> {
    Err(TreeError::Broken(what))
}

fn ascending(list: &[u64]) -> bool {
    list.windows(2).all(|w| w[0] < w[1])
}

fn subset(part: &[u64], of: &[u64]) -> bool {
    part.iter().all(|x| of.binary_search(x).is_ok())
}

fn check_centroid(cfg: &TreeConfig, what: &str, id: u64, centroid: &[f32]) -> Result<(), TreeError> {
    if centroid.len() != cfg.dim || centroid.iter().any(|x| !x.is_finite()) {
        return broken(format!("centroid of {what} {id} has the wrong length or is not finite"));
    }
    Ok(())
}

fn check_leaf(cfg: &TreeConfig, tree: &Tree, id: u64, leaf: &Leaf) -> Result<(), TreeError> {
    if leaf.id != id || id >= tree.next_id {
        return broken(format!("leaf {} is filed under {id}, next id {}", leaf.id, tree.next_id));
    }
    check_centroid(cfg, "leaf", id, &leaf.centroid)?;
    if leaf.r2.is_nan() || leaf.r2 < 0.0 {
        return broken(format!("leaf {id} has r2 {}", leaf.r2));
    }
    if usize::from(leaf.band) > tree.params.bands.len() {
        return broken(format!("leaf {id} is in band {} which does not exist", leaf.band));
    }
    if leaf.primaries.is_empty() {
        return broken(format!("leaf {id} has no primaries"));
    }
    if !ascending(&leaf.primaries) || !ascending(&leaf.secondaries) {
        return broken(format!("rows of leaf {id} are not ascending"));
    }
    if let Change::Appended { primaries, secondaries } = &leaf.change {
        let sorted = ascending(primaries) && ascending(secondaries);
        if !sorted || !subset(primaries, &leaf.primaries) || !subset(secondaries, &leaf.secondaries) {
            return broken(format!("appended rows of leaf {id} are not in its lists"));
        }
    }
    Ok(())
}

fn check_nodes(cfg: &TreeConfig, tree: &Tree) -> Result<(), TreeError> {
    // Band of every node of the level in hand, by id; filled level by level from the leaves up.
    let mut below: BTreeMap<u64, u8> = tree.leaves.iter().map(|(&id, leaf)| (id, leaf.band)).collect();
    let mut ids: BTreeSet<u64> = below.keys().copied().collect();
    for level in 1..=tree.top.child_level.max(1) {
        let mut here: BTreeMap<u64, u8> = BTreeMap::new();
        let mut seen = 0usize;
        let mut add = |id: u64, children: &[u64], max: usize| -> Result<(), TreeError> {
            if children.is_empty() || children.len() > max || !ascending(children) {
                return broken(format!("node {id} of level {level} has {} children", children.len()));
            }
            let mut band = None;
            for child in children {
                let Some(&b) = below.get(child) else {
                    return broken(format!(
                        "node {id} names a child {child} that is not of level {}",
                        level - 1
                    ));
                };
                if band.is_some_and(|x| x != b) {
                    return broken(format!("node {id} mixes bands"));
                }
                band = Some(b);
            }
            seen += children.len();
            if id >= tree.next_id || !ids.insert(id) {
                return broken(format!("id {id} is used twice or not given out yet"));
            }
            here.insert(id, band.unwrap_or(0));
            Ok(())
        };
        let mut named: Vec<u64> = Vec::new();
        if level == 1 {
            for (&id, group) in &tree.groups {
                if group.id != id {
                    return broken(format!("group {} is filed under {id}", group.id));
                }
                check_centroid(cfg, "group", id, &group.centroid)?;
                add(id, &group.leaves, GROUP_MAX)?;
                named.extend(&group.leaves);
            }
        } else {
            for (&id, inner) in tree.inners.iter().filter(|(_, inner)| inner.level == level) {
                if inner.id != id {
                    return broken(format!("node {} is filed under {id}", inner.id));
                }
                check_centroid(cfg, "node", id, &inner.centroid)?;
                add(id, &inner.children, INNER_MAX)?;
                named.extend(&inner.children);
            }
        }
        named.sort_unstable();
        named.dedup();
        if seen != below.len() || named.len() != seen {
            return broken(format!(
                "{} nodes of level {} but {seen} references to them",
                below.len(),
                level - 1
            ));
        }
        below = here;
    }
    if let Some(inner) = tree.inners.values().find(|i| i.level < 2 || i.level > tree.top.child_level) {
        return broken(format!(
            "node {} has level {} in a tree of {}",
            inner.id, inner.level, tree.top.child_level
        ));
    }
    let children: Vec<u64> = below.keys().copied().collect();
    if children != tree.top.children || children.len() > INNER_MAX {
        return broken("the root does not name exactly the nodes of its level".into());
    }
    Ok(())
}
