//! Plans the blocks of one group: which slots stay, which are copied, which rows are encoded.

use std::collections::BTreeMap;

use pando_format::{GroupBlock, LeafPlace, SlotKind};
use pando_tree::{Change, Group, Leaf, Tree};

use super::super::live::Condemned;
use super::super::parent::{OldGroup, Parent};
use super::policy::{Layout, Shape, layout};

/// A stored slot that is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// Group of the parent root.
    pub group: u64,
    /// Where in it.
    pub place: LeafPlace,
}

/// A slot to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotPlan {
    pub leaf: u64,
    pub kind: SlotKind,
    /// Slots whose codes are copied.
    pub sources: Vec<Source>,
    /// Primaries to be encoded, ascending.
    pub primaries: Vec<u64>,
    /// Secondaries to be encoded, ascending.
    pub secondaries: Vec<u64>,
}

/// What becomes of a group's blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupPlan {
    pub group: u64,
    /// Blocks of the parent's group that stay, by their index there.
    pub kept: Vec<usize>,
    /// Slots of the new block, which follows those; empty: no new block.
    pub slots: Vec<SlotPlan>,
    /// For each leaf of the group, in order: its slots in the blocks that stay (by the index of the block in `kept`).
    pub parts: Vec<Vec<LeafPlace>>,
}

impl SlotPlan {
    /// Rows to be encoded.
    pub fn fresh(&self) -> usize {
        self.primaries.len() + self.secondaries.len()
    }
}

/// How a leaf gets into its group.
enum Way<'a> {
    /// Its slots are in the group's blocks; these rows come on top.
    InPlace { places: &'a [LeafPlace], primaries: &'a [u64], secondaries: &'a [u64] },
    /// Its slots are in another group's blocks; these rows come on top.
    Moved { group: u64, places: &'a [LeafPlace], primaries: &'a [u64], secondaries: &'a [u64] },
    /// All its rows are encoded.
    Fresh,
}

fn way<'a>(parent: Option<&'a Parent>, group: u64, leaf: &'a Leaf) -> Way<'a> {
    let (primaries, secondaries): (&[u64], &[u64]) = match &leaf.change {
        Change::Clean => (&[], &[]),
        Change::Appended { primaries, secondaries } => (primaries, secondaries),
        Change::Rewritten => return Way::Fresh,
    };
    let Some((from, at)) = parent.and_then(|p| p.leaves.get(&leaf.id)).copied() else { return Way::Fresh };
    let places = parent.map_or(&[][..], |p| &p.groups[&from].leaves[at].parts);
    if from == group {
        Way::InPlace { places, primaries, secondaries }
    } else {
        Way::Moved { group: from, places, primaries, secondaries }
    }
}

/// Plans a group of the new tree. A group whose base lies in a condemned pack gets a new base.
pub fn plan(parent: Option<&Parent>, tree: &Tree, group: &Group, condemned: &Condemned) -> GroupPlan {
    let old = parent.and_then(|p| p.groups.get(&group.id));
    let leaves: Vec<&Leaf> = group.leaves.iter().map(|id| &tree.leaves[id]).collect();
    let ways: Vec<Way<'_>> = leaves.iter().map(|leaf| way(parent, group.id, leaf)).collect();
    let blocks: Vec<u64> = old.map_or(Vec::new(), |o| (0..o.blocks.len()).map(|b| o.rows_in(b)).collect());
    let (mut counted, mut new) = (0, 0);
    for (leaf, way) in leaves.iter().zip(&ways) {
        match way {
            Way::InPlace { places, primaries, secondaries } => {
                counted += old.map_or(0, |o| places.iter().map(|p| o.rows_of(p)).sum::<u64>());
                new += (primaries.len() + secondaries.len()) as u64;
            }
            _ => new += (leaf.primaries.len() + leaf.secondaries.len()) as u64,
        }
    }
    let superseded = blocks.iter().sum::<u64>() - counted;
    let mut decided = layout(&Shape { blocks, superseded, new });
    if decided != Layout::Base && old.is_some_and(|o| leaves_pack(o, condemned)) {
        decided = Layout::Base;
    }
    let keep = match decided {
        Layout::Base => 0,
        Layout::Delta { keep } => keep,
        Layout::Keep => old.map_or(0, |o| o.blocks.len()),
    };
    let mut out = GroupPlan { group: group.id, kept: Vec::new(), slots: Vec::new(), parts: Vec::new() };
    for (leaf, way) in leaves.into_iter().zip(&ways) {
        let (slot, parts) = plan_leaf(leaf, way, group.id, keep, decided == Layout::Base);
        out.slots.extend(slot);
        out.parts.push(parts);
    }
    out.drop_unused(old, keep);
    out
}

/// Whether the group's base is to leave its pack: then all of the group is written, which the move pays for.
fn leaves_pack(old: &OldGroup, condemned: &Condemned) -> bool {
    let refs = |b: &GroupBlock| [Some(b.leaf), b.refine].into_iter().flatten();
    let base = old.blocks.first().is_some_and(|b| refs(b).any(|r| condemned.has(&r.pack)));
    base && condemned.spend(old.blocks.iter().flat_map(refs).map(|r| u64::from(r.len)).sum())
}

/// The slot to be written for a leaf, if any, and its slots that stay.
fn plan_leaf(
    leaf: &Leaf,
    way: &Way<'_>,
    group: u64,
    keep: usize,
    base: bool,
) -> (Option<SlotPlan>, Vec<LeafPlace>) {
    let slot = |kind, sources, primaries: &[u64], secondaries: &[u64]| SlotPlan {
        leaf: leaf.id,
        kind,
        sources,
        primaries: primaries.to_vec(),
        secondaries: secondaries.to_vec(),
    };
    match way {
        Way::Fresh => {
            (Some(slot(SlotKind::Whole, Vec::new(), &leaf.primaries, &leaf.secondaries)), Vec::new())
        }
        Way::Moved { group: from, places, primaries, secondaries } => {
            let sources = places.iter().map(|place| Source { group: *from, place: *place }).collect();
            (Some(slot(SlotKind::Whole, sources, primaries, secondaries)), Vec::new())
        }
        Way::InPlace { places, primaries, secondaries } => {
            let stays = |place: &&LeafPlace| usize::from(place.block) < keep;
            let kept: Vec<LeafPlace> = places.iter().filter(stays).copied().collect();
            let copied = places.iter().filter(|p| !stays(p));
            let sources: Vec<Source> = copied.map(|place| Source { group, place: *place }).collect();
            if sources.is_empty() && primaries.is_empty() && secondaries.is_empty() {
                return (None, kept);
            }
            // The first of a leaf's slots is its whole slot: when no slot stays, the new one is whole.
            debug_assert!(!base || kept.is_empty());
            let kind = if kept.is_empty() { SlotKind::Whole } else { SlotKind::Append };
            (Some(slot(kind, sources, primaries, secondaries)), kept)
        }
    }
}

impl GroupPlan {
    /// Blocks that would stay and of which nothing counts any more are dropped.
    fn drop_unused(&mut self, old: Option<&OldGroup>, keep: usize) {
        let blocks = old.map_or(0, |o| o.blocks.len()).min(keep);
        let mut number: BTreeMap<u8, u8> = BTreeMap::new();
        for block in self.parts.iter().flatten().map(|p| p.block) {
            number.entry(block).or_default();
        }
        // The base stays in its place even when nothing in it counts: then it is rewritten by the rule anyway.
        for (new, (old, at)) in number.iter_mut().enumerate() {
            debug_assert!(usize::from(*old) < blocks);
            *at = new as u8;
            self.kept.push(usize::from(*old));
        }
        for place in self.parts.iter_mut().flatten() {
            place.block = number[&place.block];
        }
    }
}
