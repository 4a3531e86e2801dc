//! The nodes of a root's tree, level by level.

use pando_format::{BlockRef, Centroids, NodeChildren, NodeCodes, NodeRefs, Stored, TreeInfo};

use super::RootIo;
use super::error::{damaged, undecodable};
use crate::error::Result;

/// Where the three blocks of a node lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodePlace {
    /// Its children's references.
    pub refs: BlockRef,
    /// Its children's codes.
    pub codes: BlockRef,
    /// Its children's centroids.
    pub centroids: BlockRef,
}

/// A node: a group of leaves, or an inner node.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its children's references.
    pub refs: NodeRefs,
    /// Its children's codes, in the same order.
    pub codes: NodeCodes,
    /// Its children's centroids, in the same order, when they were asked for.
    pub centroids: Option<Centroids>,
    /// Where its blocks lie; `None` for the top node, which is part of the manifest.
    pub place: Option<NodePlace>,
}

/// All nodes of a tree, the top first.
#[derive(Clone, Debug)]
pub struct NodeLevels {
    /// `levels[0]` is the top node alone; `levels[i + 1]` are the children of `levels[i]`, in order. The last level
    /// holds the groups, whose children are the leaves.
    pub levels: Vec<Vec<Node>>,
}

impl NodeLevels {
    /// The groups, in the order of leaves.
    pub fn groups(&self) -> &[Node] {
        self.levels.last().map_or(&[], Vec::as_slice)
    }
}

impl RootIo {
    /// Reads every node of a tree; with `centroids` also the full-precision centroids, which only a checkpoint and
    /// `verify` need. Ids, levels and numbers of children are checked against the parents'.
    pub async fn nodes(&self, tree: &TreeInfo, centroids: bool) -> Result<NodeLevels> {
        let top = Node {
            refs: tree.top.refs.clone(),
            codes: tree.top.decode_codes().map_err(|e| undecodable(e, "top node"))?,
            centroids: match centroids {
                true => Some(self.centroids(&tree.top.centroids).await?),
                false => None,
            },
            place: None,
        };
        check(&top, None)?;
        let mut levels = vec![vec![top]];
        let mut leaves = None;
        while leaves.is_none() {
            let last = &levels[levels.len() - 1];
            let mut children = Vec::new();
            let mut count = 0u64;
            for node in last {
                match &node.refs.children {
                    NodeChildren::Group { leaves, .. } => count += leaves.len() as u64,
                    NodeChildren::Inner(inner) => {
                        children.extend(inner.iter().map(|c| (*c, node.refs.level)))
                    }
                }
            }
            if children.is_empty() {
                leaves = Some(count);
            } else if count > 0 {
                return Err(damaged("tree: a level mixes groups and inner nodes"));
            } else {
                levels.push(self.level(&children, centroids).await?);
            }
        }
        if leaves != Some(tree.leaves) || levels.len() + 1 != usize::from(tree.levels) {
            return Err(damaged("tree: it does not have the stated number of leaves or levels"));
        }
        Ok(NodeLevels { levels })
    }

    async fn level(&self, children: &[(pando_format::InnerChild, u8)], centroids: bool) -> Result<Vec<Node>> {
        let refs: Vec<BlockRef> = children.iter().map(|(c, _)| c.refs).collect();
        let codes: Vec<BlockRef> = children.iter().map(|(c, _)| c.codes).collect();
        let exact: Vec<BlockRef> = children.iter().filter(|_| centroids).map(|(c, _)| c.centroids).collect();
        let (refs, codes, exact) =
            tokio::try_join!(self.blocks(&refs), self.blocks(&codes), self.blocks(&exact))?;
        let mut exact = exact.into_iter();
        let mut out = Vec::with_capacity(children.len());
        for (((child, parent_level), refs), codes) in children.iter().zip(refs).zip(codes) {
            let place = NodePlace { refs: child.refs, codes: child.codes, centroids: child.centroids };
            let node = Node {
                refs: NodeRefs::decode(&refs).map_err(|e| undecodable(e, child.refs.pack))?,
                codes: NodeCodes::decode(codes).map_err(|e| undecodable(e, child.codes.pack))?,
                centroids: exact
                    .next()
                    .map(|bytes| Centroids::decode(bytes).map_err(|e| undecodable(e, child.centroids.pack)))
                    .transpose()?,
                place: Some(place),
            };
            check(&node, Some((child.id, *parent_level)))?;
            out.push(node);
        }
        Ok(out)
    }

    async fn centroids(&self, block: &BlockRef) -> Result<Centroids> {
        Centroids::decode(self.block(block).await?).map_err(|e| undecodable(e, block.pack))
    }
}

/// A node fits what its parent says of it, and its blocks fit each other.
fn check(node: &Node, parent: Option<(u64, u8)>) -> Result<()> {
    let n = node.refs.children.len();
    if node.codes.len() != n || node.centroids.as_ref().is_some_and(|c| c.len() != n) {
        return Err(damaged("tree: a node's blocks have different numbers of children"));
    }
    if parent.is_some_and(|(id, level)| node.refs.id != id || node.refs.level + 1 != level) {
        return Err(damaged("tree: a node is not the one its parent names"));
    }
    Ok(())
}
