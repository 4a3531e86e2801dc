//! The nodes of the new tree, level by level: what did not change stays where it is.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use pando_format::{
    BlockRef, InnerChild, LeafChild, NodeChildren, NodeCodesParts, NodeRefs, PackKind, RowSet, Stored,
    TopNode, encode_centroids, encode_node_codes,
};
use pando_tree::search::{Frame, encode_nav_child, inner_r2};
use pando_tree::{Change, Group, Tree, fingerprint_rows};
use rayon::prelude::*;

use super::super::context::Context;
use super::super::live::{Condemned, LiveBytes};
use super::super::packs::Packs;
use super::super::parent::Parent;
use super::blocks::{GroupBlocks, Place};
use crate::error::{Error, Result};
use crate::rootio::NodePlace;

/// What the writing of nodes works with.
pub struct NodeWriter<'a> {
    pub ctx: &'a Context,
    pub tree: &'a Tree,
    pub parent: Option<&'a Parent>,
    pub frame: &'a Frame,
    /// All dead rows.
    pub dead: &'a RowSet,
    /// Packs whose blocks are to move.
    pub condemned: &'a Condemned,
}

/// The nodes of the new root.
pub struct WrittenTree {
    pub top: TopNode,
    pub levels: u8,
    /// References and codes of the groups, in order.
    pub groups: Vec<NodeRefs>,
}

/// Where centroid blocks lie, before packs are sealed.
pub struct CentroidPlaces {
    nodes: BTreeMap<u64, Place>,
    top: Place,
}

/// A node of either kind as the writer sees it.
struct View<'a> {
    id: u64,
    level: u8,
    recoded: bool,
    /// Centroid, radius and live primaries of each child, in order.
    children: Vec<(&'a [f32], f32, u64)>,
}

fn encoding(e: pando_format::FormatError) -> Error {
    Error::internal(format!("encoding a node: {e}"))
}

impl<'a> NodeWriter<'a> {
    /// Whether the top node is the only group itself.
    fn top_is_group(&self) -> bool {
        self.tree.groups.len() == 1 && self.tree.top.child_level == 1
    }

    /// Ids of the nodes below the top that have blocks of their own, lowest level first.
    fn below_top(&self) -> Vec<(u64, u8)> {
        if self.top_is_group() {
            return Vec::new();
        }
        let mut nodes: Vec<(u64, u8)> = self.tree.groups.keys().map(|id| (*id, 1)).collect();
        nodes.extend(self.tree.inners.values().map(|inner| (inner.id, inner.level)));
        nodes.sort_by_key(|(id, level)| (*level, *id));
        nodes
    }

    /// The leaves of every group as their group will know them, without their slots.
    pub fn leaf_children(&self) -> BTreeMap<u64, LeafChild> {
        let child = |leaf: &pando_tree::Leaf| {
            let old = self.parent.and_then(|p| {
                let (group, at) = p.leaves.get(&leaf.id)?;
                (leaf.change == Change::Clean).then(|| &p.groups[group].leaves[*at])
            });
            let (primary_fp, secondary_fp) = match old {
                Some(old) => (old.primary_fp, old.secondary_fp),
                None => (fingerprint_rows(&leaf.primaries), fingerprint_rows(&leaf.secondaries)),
            };
            LeafChild {
                id: leaf.id,
                band: leaf.band,
                whole: leaf.whole,
                live: leaf.primaries.iter().filter(|row| !self.dead.contains(**row)).count() as u32,
                n_primary: leaf.primaries.len() as u32,
                n_secondary: leaf.secondaries.len() as u32,
                primary_fp,
                secondary_fp,
                parts: Vec::new(),
            }
        };
        let leaves: Vec<&pando_tree::Leaf> = self.tree.leaves.values().collect();
        leaves.par_iter().map(|leaf| (leaf.id, child(leaf))).collect::<Vec<_>>().into_iter().collect()
    }

    /// Writes the centroid blocks of all nodes that changed, the top's included.
    pub fn centroids(&self, packs: &mut Packs<'_>) -> Result<CentroidPlaces> {
        let mut nodes = BTreeMap::new();
        for (id, level) in self.below_top() {
            let (recoded, old) = match level {
                1 => (self.tree.groups[&id].recoded, self.old_place(id, 1)),
                _ => (self.tree.inners[&id].recoded, self.old_place(id, level)),
            };
            let old =
                old.map(|place| place.centroids).filter(|block| !recoded && !self.condemned.moves(block));
            let place = match old {
                Some(block) => Place::Kept(block),
                None => Place::New(self.append_centroids(&self.child_centroids(id, level), packs)?),
            };
            nodes.insert(id, place);
        }
        let old =
            self.parent.map(|p| p.top.1).filter(|block| self.top_stays() && !self.condemned.moves(block));
        let top = match old {
            Some(block) => Place::Kept(block),
            None => Place::New(self.append_centroids(&self.top_centroids(), packs)?),
        };
        Ok(CentroidPlaces { nodes, top })
    }

    fn append_centroids(
        &self,
        centroids: &[&[f32]],
        packs: &mut Packs<'_>,
    ) -> Result<super::super::packs::Ticket> {
        let block = encode_centroids(self.ctx.dim(), &centroids.concat()).map_err(encoding)?;
        packs.append(PackKind::Centroids, &block)
    }

    fn old_place(&self, id: u64, level: u8) -> Option<NodePlace> {
        let parent = self.parent?;
        if level == 1 {
            parent.groups.get(&id)?.place
        } else {
            parent.inners.get(&id).map(|(_, place)| *place)
        }
    }

    /// Whether the top node has the same children with the same centroids as the parent root's.
    fn top_stays(&self) -> bool {
        let Some(parent) = self.parent else { return false };
        if self.top_is_group() {
            let group = self.tree.groups.values().next();
            return group.is_some_and(|g| !g.recoded && parent.top.0.level == 1 && parent.top.0.id == g.id);
        }
        let NodeChildren::Inner(old) = &parent.top.0.children else { return false };
        parent.top.0.level == self.tree.top.child_level + 1
            && old.iter().map(|c| c.id).eq(self.tree.top.children.iter().copied())
            && !self.tree.top.children.iter().any(|id| self.recoded(*id))
    }

    fn recoded(&self, id: u64) -> bool {
        self.tree.groups.get(&id).map(|g| g.recoded).or_else(|| self.tree.inners.get(&id).map(|i| i.recoded))
            != Some(false)
    }

    fn centroid(&self, id: u64) -> &'a [f32] {
        match self.tree.groups.get(&id) {
            Some(group) => &group.centroid,
            None => &self.tree.inners[&id].centroid,
        }
    }

    fn child_centroids(&self, id: u64, level: u8) -> Vec<&'a [f32]> {
        match level {
            1 => {
                self.tree.groups[&id].leaves.iter().map(|leaf| &self.tree.leaves[leaf].centroid[..]).collect()
            }
            _ => self.tree.inners[&id].children.iter().map(|child| self.centroid(*child)).collect(),
        }
    }

    fn top_centroids(&self) -> Vec<&'a [f32]> {
        match self.top_is_group() {
            true => self.child_centroids(self.tree.top.children[0], 1),
            false => self.tree.top.children.iter().map(|child| self.centroid(*child)).collect(),
        }
    }

    /// Writes references and codes, once leaf blocks and centroids have their names. `children` as from
    /// [`NodeWriter::leaf_children`].
    pub fn write(
        &self,
        blocks: &BTreeMap<u64, GroupBlocks>,
        mut children: BTreeMap<u64, LeafChild>,
        centroids: &CentroidPlaces,
        packs: &mut Packs<'_>,
        live: &mut LiveBytes,
    ) -> Result<WrittenTree> {
        let mut groups: BTreeMap<u64, NodeRefs> = BTreeMap::new();
        for group in self.tree.groups.values() {
            groups.insert(group.id, group_refs(group, &blocks[&group.id], &mut children, packs, live)?);
        }
        let mut known = Known::default();
        for (id, refs) in &groups {
            if let NodeChildren::Group { leaves, .. } = &refs.children {
                known.live.insert(*id, leaves.iter().map(|l| u64::from(l.live)).sum());
                known.leaves.insert(*id, leaves.len() as u64);
                known.leaf_live.extend(leaves.iter().map(|l| (l.id, u64::from(l.live))));
            }
        }
        let mut level_open = 1;
        let mut written: Vec<(u64, Place, Place)> = Vec::new();
        for (id, level) in self.below_top() {
            if level != level_open {
                // References name packs, so the level below gets its name first.
                self.close_level(&mut written, centroids, &mut known, packs, live)?;
                level_open = level;
            }
            let view = self.view(id, level, &known);
            known.radius.insert(id, self.radius(&view));
            let refs = match level {
                1 => groups[&id].clone(),
                _ => self.inner_refs(id, level, &mut known)?,
            };
            let (refs, codes) = self.write_node(&view, &refs, packs)?;
            written.push((id, refs, codes));
        }
        self.close_level(&mut written, centroids, &mut known, packs, live)?;
        let top = self.top(&groups, centroids, &known, packs)?;
        live.add(&top.centroids);
        Ok(WrittenTree { levels: top.refs.level + 1, top, groups: groups.into_values().collect() })
    }

    fn close_level(
        &self,
        written: &mut Vec<(u64, Place, Place)>,
        centroids: &CentroidPlaces,
        known: &mut Known,
        packs: &mut Packs<'_>,
        live: &mut LiveBytes,
    ) -> Result<()> {
        packs.seal(PackKind::Nodes)?;
        for (id, refs, codes) in written.drain(..) {
            let place = NodePlace {
                refs: refs.resolve(packs)?,
                codes: codes.resolve(packs)?,
                centroids: centroids.nodes[&id].resolve(packs)?,
            };
            for block in [&place.refs, &place.codes, &place.centroids] {
                live.add(block);
            }
            known.places.insert(id, place);
        }
        Ok(())
    }

    fn view(&self, id: u64, level: u8, known: &Known) -> View<'a> {
        let (recoded, children) = match level {
            1 => {
                let group = &self.tree.groups[&id];
                let leaf = |id: &u64| {
                    let leaf = &self.tree.leaves[id];
                    (&leaf.centroid[..], leaf.r2, known.leaf_live[id])
                };
                (group.recoded, group.leaves.iter().map(leaf).collect())
            }
            _ => {
                let inner = &self.tree.inners[&id];
                let child = |id: &u64| (self.centroid(*id), known.radius[id], known.live[id]);
                (inner.recoded, inner.children.iter().map(child).collect())
            }
        };
        View { id, level, recoded, children }
    }

    /// Mean squared radius of a node: fresh when it was recoded, else as it was.
    fn radius(&self, view: &View<'_>) -> f32 {
        let old = self.parent.and_then(|p| p.radii.get(&view.id)).filter(|_| !view.recoded);
        old.copied()
            .unwrap_or_else(|| inner_r2(self.frame, self.centroid(view.id), view.children.iter().copied()))
    }

    fn codes(&self, children: &[(&[f32], f32, u64)]) -> Result<Vec<u8>> {
        let padded = self.frame.padded();
        let n = children.len();
        let mut codes = vec![0u8; n * padded / 2];
        let mut columns: [Vec<f32>; 3] = Default::default();
        for (nibbles, (centroid, r2, _)) in codes.chunks_exact_mut(padded / 2).zip(children) {
            let constants = encode_nav_child(self.frame, centroid, *r2, nibbles);
            for (column, value) in columns.iter_mut().zip([constants.scale, constants.add, constants.r2]) {
                column.push(value);
            }
        }
        let [w, add, r2] = &columns;
        let extra = vec![0f32; n];
        encode_node_codes(&NodeCodesParts { padded, codes: &codes, w, add, r2, extra: &extra })
            .map_err(encoding)
    }

    /// References and codes of a node below the top: kept where they are the same.
    fn write_node(&self, view: &View<'_>, refs: &NodeRefs, packs: &mut Packs<'_>) -> Result<(Place, Place)> {
        let old = self.old_place(view.id, view.level);
        let same_refs = self.old_refs(view.id, view.level).is_some_and(|old| old == *refs);
        let keep = |block: Option<BlockRef>, same: bool| block.filter(|b| same && !self.condemned.moves(b));
        let codes_place = match keep(old.map(|o| o.codes), !view.recoded) {
            Some(block) => Place::Kept(block),
            None => Place::New(packs.append(PackKind::Nodes, &self.codes(&view.children)?)?),
        };
        let refs_place = match keep(old.map(|o| o.refs), same_refs) {
            Some(block) => Place::Kept(block),
            None => Place::New(packs.append(PackKind::Nodes, &refs.encode().map_err(encoding)?)?),
        };
        Ok((refs_place, codes_place))
    }

    fn old_refs(&self, id: u64, level: u8) -> Option<NodeRefs> {
        let parent = self.parent?;
        if level != 1 {
            return parent.inners.get(&id).map(|(refs, _)| refs.clone());
        }
        let old = parent.groups.get(&id)?;
        let children = NodeChildren::Group { blocks: old.blocks.clone(), leaves: old.leaves.clone() };
        Some(NodeRefs { id, level, children })
    }

    fn inner_refs(&self, id: u64, level: u8, known: &mut Known) -> Result<NodeRefs> {
        let children = &self.tree.inners[&id].children;
        let refs = NodeRefs { id, level, children: NodeChildren::Inner(known.inner_children(children)?) };
        known.live.insert(id, children.iter().map(|c| known.live[c]).sum());
        known.leaves.insert(id, children.iter().map(|c| known.leaves[c]).sum());
        Ok(refs)
    }

    fn top(
        &self,
        groups: &BTreeMap<u64, NodeRefs>,
        centroids: &CentroidPlaces,
        known: &Known,
        packs: &Packs<'_>,
    ) -> Result<TopNode> {
        let (refs, children) = match groups.first_key_value() {
            Some((id, refs)) if self.top_is_group() => (refs.clone(), self.view(*id, 1, known).children),
            _ => {
                let ids = &self.tree.top.children;
                let children = NodeChildren::Inner(known.inner_children(ids)?);
                // The top has no id of its own.
                let refs = NodeRefs { id: 0, level: self.tree.top.child_level + 1, children };
                let child = |id: &u64| (self.centroid(*id), known.radius[id], known.live[id]);
                (refs, ids.iter().map(child).collect())
            }
        };
        let codes = Bytes::from(self.codes(&children)?);
        Ok(TopNode { refs, codes, centroids: centroids.top.resolve(packs)? })
    }
}

/// What is known of nodes already written.
#[derive(Default)]
struct Known {
    places: HashMap<u64, NodePlace>,
    live: HashMap<u64, u64>,
    leaves: HashMap<u64, u64>,
    leaf_live: HashMap<u64, u64>,
    radius: HashMap<u64, f32>,
}

impl Known {
    fn inner_children(&self, ids: &[u64]) -> Result<Vec<InnerChild>> {
        let child = |id: &u64| {
            let place = self
                .places
                .get(id)
                .ok_or_else(|| Error::internal("a node is written before its children"))?;
            Ok(InnerChild {
                id: *id,
                leaves: self.leaves[id],
                live: self.live[id],
                refs: place.refs,
                codes: place.codes,
                centroids: place.centroids,
            })
        };
        ids.iter().map(child).collect()
    }
}

fn group_refs(
    group: &Group,
    blocks: &GroupBlocks,
    children: &mut BTreeMap<u64, LeafChild>,
    packs: &Packs<'_>,
    live: &mut LiveBytes,
) -> Result<NodeRefs> {
    let mut leaves = Vec::with_capacity(group.leaves.len());
    for (id, parts) in group.leaves.iter().zip(&blocks.parts) {
        let child = children.remove(id).ok_or_else(|| Error::internal("a leaf is in two groups"))?;
        leaves.push(LeafChild { parts: parts.clone(), ..child });
    }
    let blocks = blocks.resolve(packs)?;
    for block in &blocks {
        live.add(&block.leaf);
        block.refine.iter().for_each(|refine| live.add(refine));
    }
    Ok(NodeRefs { id: group.id, level: 1, children: NodeChildren::Group { blocks, leaves } })
}
