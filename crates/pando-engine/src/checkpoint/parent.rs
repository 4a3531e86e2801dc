//! The parent root's tree, read back into the form that the tree's algorithms work on.
//!
//! Leaf blocks are read a few at a time; what is kept of them is row numbers and the sizes of slots.

use std::collections::{BTreeMap, HashMap};

use pando_format::{
    BlockRef, DecodedLeafBlock, GroupBlock, LeafChild, LeafPlace, NodeChildren, NodeRefs, SlotKind, TreeInfo,
};
use pando_tree::{Change, Group, Inner, Leaf, Top, Tree, TreeParams, fingerprint_rows};
use rayon::prelude::*;

use super::context::Context;
use crate::error::Result;
use crate::rootio::{Node, NodeLevels, NodePlace, damaged, undecodable};

/// Bytes of leaf blocks in memory at a time.
const READ_BYTES: u64 = 32 << 20;

/// A group of the parent root.
#[derive(Clone, Debug)]
pub struct OldGroup {
    /// Where its node's blocks lie; `None` when it is the top node.
    pub place: Option<NodePlace>,
    /// Base and deltas.
    pub blocks: Vec<GroupBlock>,
    /// Its leaves.
    pub leaves: Vec<LeafChild>,
    /// Rows in each slot of each block.
    pub slots: Vec<Vec<u32>>,
}

impl OldGroup {
    /// Rows stored in a block, superseded ones included.
    pub fn rows_in(&self, block: usize) -> u64 {
        self.slots[block].iter().map(|n| u64::from(*n)).sum()
    }

    /// Rows of a slot.
    pub fn rows_of(&self, place: &LeafPlace) -> u64 {
        u64::from(self.slots[usize::from(place.block)][place.slot as usize])
    }
}

/// Where the parts of the parent's tree are stored.
#[derive(Debug)]
pub struct Parent {
    /// Groups by id.
    pub groups: BTreeMap<u64, OldGroup>,
    /// Group and place in its list of each leaf.
    pub leaves: HashMap<u64, (u64, usize)>,
    /// Inner nodes below the top, by id: references and places.
    pub inners: BTreeMap<u64, (NodeRefs, NodePlace)>,
    /// Mean squared radius of groups and inner nodes below the top, as their parents' codes have it.
    pub radii: HashMap<u64, f32>,
    /// The top node: its references, and where its children's centroids lie.
    pub top: (NodeRefs, BlockRef),
}

/// Reads the tree of the parent root, all marked clean, and where its parts are stored.
pub fn load(ctx: &Context, info: &TreeInfo) -> Result<(Tree, Parent)> {
    let nodes = ctx.block(ctx.io.nodes(info, true))?;
    let mut tree = Tree {
        params: TreeParams {
            split_size: info.split_size,
            mean: info.mean.clone(),
            bands: info.bands.clone(),
        },
        leaves: BTreeMap::new(),
        groups: BTreeMap::new(),
        inners: BTreeMap::new(),
        top: Top::default(),
        next_id: info.next_id,
        scrub_cursor: info.scrub_cursor,
    };
    let mut parent = Parent {
        groups: BTreeMap::new(),
        leaves: HashMap::new(),
        inners: BTreeMap::new(),
        radii: HashMap::new(),
        top: (info.top.refs.clone(), info.top.centroids),
    };
    inner_nodes(&mut tree, &mut parent, &nodes)?;
    let groups = nodes.groups();
    let mut at = 0;
    while at < groups.len() {
        ctx.check_cancel()?;
        let mut bytes = 0;
        let mut end = at;
        while end < groups.len() && (end == at || bytes < READ_BYTES) {
            bytes += leaf_blocks(&groups[end])?.0.iter().map(|b| u64::from(b.leaf.len)).sum::<u64>();
            end += 1;
        }
        load_groups(ctx, &groups[at..end], &mut tree, &mut parent)?;
        ctx.report("reading the tree", end as u64, groups.len() as u64);
        at = end;
    }
    if let [group] = groups
        && nodes.levels.len() == 1
    {
        sole_group(ctx, group.refs.id, &mut tree, &parent)?;
    }
    Ok((tree, parent))
}

fn leaf_blocks(group: &Node) -> Result<(&[GroupBlock], &[LeafChild])> {
    match &group.refs.children {
        NodeChildren::Group { blocks, leaves } => Ok((blocks, leaves)),
        NodeChildren::Inner(_) => Err(damaged("tree: an inner node among the groups")),
    }
}

/// Inner nodes, the top, and the empty shells of groups with their centroids.
fn inner_nodes(tree: &mut Tree, parent: &mut Parent, nodes: &NodeLevels) -> Result<()> {
    let top = &nodes.levels[0][0];
    match &top.refs.children {
        NodeChildren::Group { .. } => tree.top = Top { child_level: 1, children: vec![top.refs.id] },
        NodeChildren::Inner(children) => {
            let ids = children.iter().map(|c| c.id).collect();
            tree.top = Top { child_level: top.refs.level - 1, children: ids };
        }
    }
    for node in nodes.levels.iter().flatten() {
        let NodeChildren::Inner(children) = &node.refs.children else { continue };
        let Some(centroids) = &node.centroids else { continue };
        for (i, child) in children.iter().enumerate() {
            let centroid = centroids.get(i).to_vec();
            parent.radii.insert(child.id, node.codes.r2()[i]);
            if node.refs.level == 2 {
                let group =
                    Group { id: child.id, leaves: Vec::new(), centroid, changed: false, recoded: false };
                tree.groups.insert(child.id, group);
            } else {
                let level = node.refs.level - 1;
                let inner = Inner {
                    id: child.id,
                    level,
                    children: Vec::new(),
                    centroid,
                    changed: false,
                    recoded: false,
                };
                tree.inners.insert(child.id, inner);
            }
        }
    }
    for node in nodes.levels.iter().skip(1).flatten() {
        let NodeChildren::Inner(children) = &node.refs.children else { continue };
        let (Some(inner), Some(place)) = (tree.inners.get_mut(&node.refs.id), node.place) else {
            return Err(damaged("tree: a node has no parent"));
        };
        inner.children = children.iter().map(|c| c.id).collect();
        parent.inners.insert(node.refs.id, (node.refs.clone(), place));
    }
    Ok(())
}

/// The centroid of a group that is the top node is stored nowhere: it is the mean of its leaves'.
fn sole_group(ctx: &Context, id: u64, tree: &mut Tree, parent: &Parent) -> Result<()> {
    let Some(old) = parent.groups.get(&id) else { return Err(damaged("tree: the top group is missing")) };
    let mut sum = vec![0f64; ctx.dim()];
    let mut weight = 0f64;
    for leaf in &old.leaves {
        let w = f64::from(leaf.live.max(1));
        for (s, x) in sum.iter_mut().zip(&tree.leaves[&leaf.id].centroid) {
            *s += w * f64::from(*x);
        }
        weight += w;
    }
    let centroid = sum.iter().map(|s| (s / weight) as f32).collect();
    let leaves = old.leaves.iter().map(|l| l.id).collect();
    tree.groups.insert(id, Group { id, leaves, centroid, changed: false, recoded: false });
    Ok(())
}

/// Reads the leaf blocks of some groups.
fn load_groups(ctx: &Context, groups: &[Node], tree: &mut Tree, parent: &mut Parent) -> Result<()> {
    let mut refs = Vec::new();
    for group in groups {
        refs.extend(leaf_blocks(group)?.0.iter().map(|b| b.leaf));
    }
    let mut bytes = ctx.block(ctx.io.blocks(&refs))?.into_iter();
    let mut work = Vec::with_capacity(groups.len());
    for group in groups {
        let n = leaf_blocks(group)?.0.len();
        work.push((group, bytes.by_ref().take(n).collect::<Vec<_>>()));
    }
    let read: Result<Vec<(OldGroup, Vec<Leaf>)>> = work
        .into_par_iter()
        .map(|(group, bytes)| {
            let (blocks, _) = leaf_blocks(group)?;
            let decode = |(bytes, block): (_, &GroupBlock)| {
                DecodedLeafBlock::decode(bytes).map_err(|e| undecodable(e, block.leaf.pack))
            };
            let decoded: Vec<DecodedLeafBlock> =
                bytes.into_iter().zip(blocks).map(decode).collect::<Result<_>>()?;
            read_group(ctx, group, &decoded)
        })
        .collect();
    for (node, (group, leaves)) in groups.iter().zip(read?) {
        let id = node.refs.id;
        if let Some(shell) = tree.groups.get_mut(&id) {
            shell.leaves = leaves.iter().map(|l| l.id).collect();
        }
        for (i, leaf) in leaves.into_iter().enumerate() {
            let twice = parent.leaves.insert(leaf.id, (id, i)).is_some();
            if twice {
                return Err(damaged("tree: a leaf is in two groups"));
            }
            tree.leaves.insert(leaf.id, leaf);
        }
        parent.groups.insert(id, group);
    }
    Ok(())
}

fn read_group(ctx: &Context, node: &Node, blocks: &[DecodedLeafBlock]) -> Result<(OldGroup, Vec<Leaf>)> {
    let (group_blocks, children) = leaf_blocks(node)?;
    let slots: Vec<Vec<u32>> = blocks
        .iter()
        .map(|b| b.slots().iter().map(|s| (s.n_primary + s.n_secondary) as u32).collect())
        .collect();
    if blocks.iter().any(|b| b.dim() != ctx.dim() || b.padded() != ctx.config().padded()) {
        return Err(damaged("leaf block: it is of another dimension"));
    }
    let mut leaves = Vec::with_capacity(children.len());
    for (i, child) in children.iter().enumerate() {
        let (primaries, secondaries) = rows_of_leaf(child, blocks)?;
        let Some(centroids) = &node.centroids else { return Err(damaged("tree: a group has no centroids")) };
        leaves.push(Leaf {
            id: child.id,
            band: child.band,
            whole: child.whole,
            centroid: centroids.get(i).to_vec(),
            r2: node.codes.r2()[i],
            primaries,
            secondaries,
            change: Change::Clean,
        });
    }
    let group =
        OldGroup { place: node.place, blocks: group_blocks.to_vec(), leaves: children.to_vec(), slots };
    Ok((group, leaves))
}

/// The rows of a leaf's slots, checked against what its group knows of it.
pub fn rows_of_leaf(child: &LeafChild, blocks: &[DecodedLeafBlock]) -> Result<(Vec<u64>, Vec<u64>)> {
    let mut primaries = Vec::with_capacity(child.n_primary as usize);
    let mut secondaries = Vec::with_capacity(child.n_secondary as usize);
    for (i, part) in child.parts.iter().enumerate() {
        let block = &blocks[usize::from(part.block)];
        if part.slot as usize >= block.slots().len() {
            return Err(damaged("leaf block: it lacks a slot that its group names"));
        }
        let slot = block.slot(part.slot as usize);
        if slot.leaf != child.id || (slot.kind == SlotKind::Whole) != (i == 0) {
            return Err(damaged("leaf block: a slot is not the one its group names"));
        }
        primaries.extend_from_slice(&slot.rows[..slot.n_primary]);
        secondaries.extend_from_slice(&slot.rows[slot.n_primary..]);
    }
    primaries.sort_unstable();
    secondaries.sort_unstable();
    if (primaries.len(), secondaries.len()) != (child.n_primary as usize, child.n_secondary as usize)
        || fingerprint_rows(&primaries) != child.primary_fp
        || fingerprint_rows(&secondaries) != child.secondary_fp
    {
        return Err(damaged("leaf block: a leaf does not have the rows that its group counts"));
    }
    Ok((primaries, secondaries))
}
