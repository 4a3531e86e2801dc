//! References of a node's children. A block like any other in its pack, but a record in an envelope: it is
//! decoded once, not scanned.

use crate::codec::{Bad, Codec, Reader, record};
use crate::envelope::stored;
use crate::ids::BlockRef;

/// Most blocks of a group: a base and two deltas.
pub const MAX_GROUP_BLOCKS: usize = 3;

record! {
    /// A leaf block of a group and the refine block beside it.
    #[derive(Copy, Eq)]
    pub struct GroupBlock {
        /// Leaf block: codes.
        pub leaf: BlockRef,
        /// Refine block with the same slots; None when the collection has refine off.
        pub refine: Option<BlockRef>,
    }
}

record! {
    /// A slot that holds a part of a leaf.
    #[derive(Copy, Eq)]
    pub struct LeafPlace {
        /// Index in the group's blocks: 0 is the base.
        pub block: u8,
        /// Slot in that block.
        pub slot: u32,
    }
}

record! {
    /// A leaf as its group knows it.
    #[derive(Eq)]
    pub struct LeafChild {
        /// Its id.
        pub id: u64,
        /// Norm band (dot), else 0.
        pub band: u8,
        /// A leaf of equal vectors, not split until it changes.
        pub whole: bool,
        /// Primaries that are live in this root.
        pub live: u32,
        /// Primaries in its slots, dead ones included.
        pub n_primary: u32,
        /// Secondaries in its slots, dead ones included.
        pub n_secondary: u32,
        /// Fingerprint of the primaries in its slots.
        pub primary_fp: u128,
        /// Fingerprint of the secondaries in its slots.
        pub secondary_fp: u128,
        /// Its slots, all of which are scanned. Never empty.
        pub parts: Vec<LeafPlace>,
    }
}

record! {
    /// A child of an inner node.
    #[derive(Copy, Eq)]
    pub struct InnerChild {
        /// Its id.
        pub id: u64,
        /// Leaves below it.
        pub leaves: u64,
        /// Live primaries below it.
        pub live: u64,
        /// Its own children's references ([`NodeRefs`]).
        pub refs: BlockRef,
        /// Its own children's codes ([`crate::NodeCodes`]).
        pub codes: BlockRef,
        /// Its own children's centroids ([`crate::Centroids`]).
        pub centroids: BlockRef,
    }
}

/// Children of a node.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeChildren {
    /// Of a group, level 1: leaves.
    Group {
        /// Base and at most two deltas.
        blocks: Vec<GroupBlock>,
        /// The leaves, in scan order.
        leaves: Vec<LeafChild>,
    },
    /// Of a node of level 2 or more: nodes one level below.
    Inner(Vec<InnerChild>),
}

impl NodeChildren {
    /// Number of children.
    pub fn len(&self) -> usize {
        match self {
            Self::Group { leaves, .. } => leaves.len(),
            Self::Inner(children) => children.len(),
        }
    }

    /// True without children.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Codec for NodeChildren {
    const MIN: usize = 5;
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Group { blocks, leaves } => {
                out.push(0);
                blocks.put(out);
                leaves.put(out);
            }
            Self::Inner(children) => {
                out.push(1);
                children.put(out);
            }
        }
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, Bad> {
        match r.array::<1>()? {
            [0] => Ok(Self::Group { blocks: Vec::take(r)?, leaves: Vec::take(r)? }),
            [1] => Ok(Self::Inner(Vec::take(r)?)),
            _ => Err("a node's children are of an unknown kind"),
        }
    }
}

record! {
    /// References of the children of a group or inner node.
    pub struct NodeRefs {
        /// The node's id.
        pub id: u64,
        /// 1 for a group, its children's level plus one otherwise.
        pub level: u8,
        /// The children, in the order of the codes block and the centroid block.
        pub children: NodeChildren,
    }
}

impl NodeRefs {
    fn check(&self) -> Result<(), Bad> {
        match &self.children {
            NodeChildren::Group { blocks, leaves } => {
                if self.level != 1 {
                    return Err("a group is not of level 1");
                }
                if blocks.is_empty() || blocks.len() > MAX_GROUP_BLOCKS {
                    return Err("a group does not have one to three blocks");
                }
                let bad_place = |p: &LeafPlace| usize::from(p.block) >= blocks.len();
                if leaves.iter().any(|l| l.parts.is_empty() || l.parts.iter().any(bad_place)) {
                    return Err("a leaf has no place in its group's blocks");
                }
                if leaves.iter().any(|l| l.live > l.n_primary) {
                    return Err("a leaf has more live primaries than primaries");
                }
            }
            NodeChildren::Inner(_) if self.level < 2 => return Err("an inner node is below level 2"),
            NodeChildren::Inner(_) => {}
        }
        if self.children.is_empty() { Err("a node has no children") } else { Ok(()) }
    }
}

stored!(NodeRefs, NodeRefs, NodeRefs::check);
