//! Opening a root: its nodes, tables and dead rows.

use std::collections::HashMap;
use std::sync::Arc;

use pando_format::{BlockRef, GroupBlock, Manifest, NodeChildren, RootId, TreeInfo};
use pando_tree::search::calibrate::{self, MarginTable};
use pando_tree::search::{Frame, Nav, NavBuilder};

use super::{GroupEntry, OpenRoot, SegmentData};
use crate::environment::Environment;
use crate::error::Result;
use crate::rootio::{NodeLevels, RootIo, damaged};

impl OpenRoot {
    /// Opens the root of this manifest. What `previous` has in common with it is taken over instead of read again.
    pub async fn open(
        env: &Environment,
        io: &RootIo,
        id: RootId,
        manifest: Arc<Manifest>,
        previous: Option<&OpenRoot>,
    ) -> Result<Self> {
        let frame = Arc::new(frame(env, &manifest));
        let nodes = async {
            match &manifest.tree {
                Some(tree) => io.nodes(tree, false).await.map(Some),
                None => Ok(None),
            }
        };
        let segments = open_segments(io, &manifest, previous);
        let (nodes, deaths, segments) = tokio::try_join!(nodes, io.deaths(&manifest.deaths), segments)?;
        let (nav, groups) = match (&manifest.tree, nodes) {
            (Some(tree), Some(nodes)) => (navigation(frame, &nodes)?, groups(tree, nodes, previous)?),
            _ => (Nav::empty(frame), Vec::new()),
        };
        if nav.leaves() as u64 != manifest.leaf_count() {
            return Err(damaged("tree: it does not have the stated number of leaves"));
        }
        let group_of: Vec<u32> = groups
            .iter()
            .zip(0..)
            .flat_map(|(entry, group)| entry.leaves.iter().map(move |_| group))
            .collect();
        let tables: usize = segments.iter().map(|segment| segment.memory()).sum();
        let bytes = nav.bytes() + tables + groups.len() * 256 + group_of.len() * 4 + deaths.serialized_size();
        let memory = env.resident.reserve(bytes as u64);
        Ok(Self {
            env: env.clone(),
            io: io.clone(),
            id,
            manifest,
            nav,
            groups,
            group_of,
            deaths,
            segments,
            _memory: memory,
        })
    }

    /// Stopping margins of the root, if it has any.
    pub fn margins(&self) -> Option<MarginTable> {
        let calibration = &self.manifest.tree.as_ref()?.calibration;
        let targets = calibrate::TARGETS.len();
        if !calibration.ks.iter().map(|k| *k as usize).eq(calibrate::K_STEPS)
            || calibration.targets.len() != targets
        {
            return None;
        }
        let mut table = MarginTable::default();
        for (row, margins) in table.margins.iter_mut().zip(calibration.margins.chunks_exact(targets)) {
            row.copy_from_slice(margins);
        }
        Some(table)
    }
}

/// Kernels, rotation and mean of a root; of a collection without a tree: no mean.
fn frame(env: &Environment, manifest: &Manifest) -> Frame {
    let config = &manifest.config;
    let mean =
        manifest.tree.as_ref().map_or_else(|| vec![0.0; config.dim as usize], |tree| tree.mean.clone());
    Frame::new(env.kernels, config.metric, config.seed, mean)
}

async fn open_segments(
    io: &RootIo,
    manifest: &Manifest,
    previous: Option<&OpenRoot>,
) -> Result<Vec<Arc<SegmentData>>> {
    let open: HashMap<[u8; 32], &Arc<SegmentData>> =
        previous.iter().flat_map(|root| &root.segments).map(|segment| (*segment.hash(), segment)).collect();
    let segments = manifest.segments.iter().map(|entry| {
        let have = open.get(&entry.object.hash.0).map(|segment| (*segment).clone());
        async move {
            match have {
                Some(segment) => Ok(segment),
                None => SegmentData::open(io, entry).await.map(Arc::new),
            }
        }
    });
    futures::future::try_join_all(segments).await
}

fn navigation(frame: Arc<Frame>, nodes: &NodeLevels) -> Result<Nav> {
    let mut builder = NavBuilder::new(frame);
    for (level, nodes) in nodes.levels.iter().enumerate() {
        for node in nodes {
            let codes = &node.codes;
            builder
                .push_node(level, codes.codes(), codes.w(), codes.add(), codes.r2())
                .map_err(|e| damaged(format!("tree: {e}")))?;
        }
    }
    builder.finish().map_err(|e| damaged(format!("tree: {e}")))
}

fn groups(tree: &TreeInfo, nodes: NodeLevels, previous: Option<&OpenRoot>) -> Result<Vec<GroupEntry>> {
    let mut known: HashMap<BlockRef, &GroupEntry> = HashMap::new();
    for entry in previous.iter().flat_map(|root| &root.groups) {
        known.insert(newest(&entry.blocks)?, entry);
    }
    let mut out = Vec::with_capacity(nodes.groups().len());
    let mut first_leaf = 0u32;
    for node in nodes.groups() {
        let NodeChildren::Group { blocks, leaves } = &node.refs.children else {
            return Err(damaged("tree: a group is an inner node"));
        };
        // What is kept of the same blocks is taken over.
        let same = known.get(&newest(blocks)?).filter(|entry| entry.blocks == *blocks);
        let (leaf, refine, maps) = same.map_or_else(Default::default, |entry| {
            (entry.leaf.clone(), entry.refine.clone(), entry.maps.clone())
        });
        let leaves: Vec<_> = leaves.iter().map(|leaf| (leaf.parts.clone(), 0)).collect();
        let count = leaves.len() as u32;
        out.push(GroupEntry { blocks: blocks.clone(), first_leaf, leaves, leaf, refine, maps });
        first_leaf += count;
    }
    if u64::from(first_leaf) != tree.leaves {
        return Err(damaged("tree: it does not have the stated number of leaves"));
    }
    Ok(out)
}

fn newest(blocks: &[GroupBlock]) -> Result<BlockRef> {
    blocks.last().map(|block| block.leaf).ok_or_else(|| damaged("tree: a group has no blocks"))
}
