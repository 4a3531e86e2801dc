//! Nodes and leaves: shape, rows, fingerprints, codes.

use pando_format::{
    BlockRef, DecodedLeafBlock, DecodedRefineBlock, GroupBlock, InnerChild, LeafChild, Manifest,
    NodeChildren, RowSet, SlotKind, TreeInfo,
};
use pando_kernels::unpack_code;
use pando_tree::search::{Frame, encode_nav_child};
use pando_tree::{TreeParams, encode_leaf, fingerprint};

use super::Findings;
use crate::checkpoint::{Context, Vectors, rows_of_leaf, tree_error};
use crate::error::Result;
use crate::rootio::{Node, damaged, undecodable};

/// One in so many rows of a leaf is encoded anew.
const SAMPLE: u64 = 64;

/// Sums over all leaves.
#[derive(Default)]
struct Sums {
    primaries: Vec<u64>,
    secondaries: Vec<u64>,
    primary_fp: u128,
    secondary_fp: u128,
    whole: bool,
}

/// What leaves are checked against.
struct Check<'a> {
    ctx: &'a Context,
    params: TreeParams,
    frame: Frame,
    dead: &'a RowSet,
    vectors: &'a Vectors,
}

/// Reads every node and every leaf.
pub(super) fn verify(
    ctx: &Context,
    manifest: &Manifest,
    rows: &RowSet,
    dead: &RowSet,
    vectors: &Vectors,
    found: &mut Findings,
) -> Result<()> {
    let mut sums = Sums { whole: true, ..Sums::default() };
    if let Some(info) = &manifest.tree {
        let (cfg, mean) = (&ctx.tree_config, info.mean.clone());
        let check = Check {
            ctx,
            frame: Frame::new(ctx.kernels, cfg.metric, cfg.seed, mean.clone()),
            params: TreeParams { split_size: info.split_size, mean, bands: info.bands.clone() },
            dead,
            vectors,
        };
        check.tree(info, &mut sums, found)?;
    }
    if sums.whole {
        compare(manifest, rows, dead, sums, found)
    }
    Ok(())
}

/// Law 4.
fn compare(manifest: &Manifest, rows: &RowSet, dead: &RowSet, mut sums: Sums, found: &mut Findings) {
    let (counts, prints) = (&manifest.counts, &manifest.fingerprints);
    sums.primaries.sort_unstable();
    sums.secondaries.sort_unstable();
    for (list, role) in [(&sums.primaries, "primary"), (&sums.secondaries, "secondary")] {
        if let Some(w) = list.windows(2).find(|w| w[0] == w[1]) {
            found.problem(format!("row {} is {role} of two leaves", w[0]));
        }
    }
    let primaries: RowSet = sums.primaries.iter().copied().collect();
    let secondaries: RowSet = sums.secondaries.iter().copied().collect();
    let live = rows - dead;
    let lost = &live - &primaries;
    found.expect(lost.is_empty(), || format!("{} live rows are in no leaf", lost.len()));
    let strays = (&primaries | &secondaries) - &live - dead;
    found.expect(strays.is_empty(), || format!("{} rows of leaves are neither live nor dead", strays.len()));
    let alone = &secondaries - &primaries - dead;
    found.expect(alone.is_empty(), || format!("{} secondaries have no primary", alone.len()));
    let nowhere = dead - rows - &primaries - &secondaries;
    found.expect(nowhere.is_empty(), || format!("{} dead rows are in no leaf and no segment", nowhere.len()));
    let print = |rows: &RowSet| rows.iter().fold(0u128, |sum, row| sum.wrapping_add(fingerprint(row)));
    let dead_primaries = &primaries & dead;
    let dead_secondaries = secondaries.intersection_len(dead);
    found.expect((print(&live), print(&dead_primaries)) == (prints.live, prints.dead_primaries), || {
        "the fingerprints of live and dead rows are not the root's".into()
    });
    found.expect((sums.primary_fp, sums.secondary_fp) == (prints.primaries, prints.secondaries), || {
        "the fingerprints of primaries and secondaries are not the root's".into()
    });
    let counted =
        [sums.primaries.len() as u64, sums.secondaries.len() as u64, dead_primaries.len(), dead_secondaries];
    let stated = [counts.primaries, counts.secondaries, counts.dead_primaries, counts.dead_secondaries];
    found.expect(counted == stated, || {
        format!("primaries, secondaries and dead ones of both are {counted:?}, the root says {stated:?}")
    });
}

impl Check<'_> {
    fn tree(&self, info: &TreeInfo, sums: &mut Sums, found: &mut Findings) -> Result<()> {
        found.live.add(&info.top.centroids);
        let Some(nodes) = found.noted(self.ctx.block(self.ctx.io.nodes(info, true)))? else {
            sums.whole = false;
            return Ok(());
        };
        found.blocks += 1;
        for place in nodes.levels.iter().flatten().filter_map(|node| node.place) {
            for block in [&place.refs, &place.codes, &place.centroids] {
                found.live.add(block);
                found.blocks += 1;
            }
        }
        for (upper, lower) in nodes.levels.iter().zip(nodes.levels.iter().skip(1)) {
            self.inner_level(upper, lower, found);
        }
        for node in nodes.levels.iter().flatten() {
            let codes = self.node_codes(node);
            found.noted(codes)?;
        }
        let groups = nodes.groups();
        for (i, node) in groups.iter().enumerate() {
            self.ctx.report("verifying leaves", i as u64, groups.len() as u64);
            self.ctx.check_cancel()?;
            let NodeChildren::Group { blocks, leaves } = &node.refs.children else { continue };
            for block in blocks {
                found.live.add(&block.leaf);
                block.refine.iter().for_each(|refine| found.live.add(refine));
                found.blocks += 1 + u64::from(block.refine.is_some());
            }
            let group = self.group(node, blocks, leaves, sums);
            sums.whole &= found.noted(group)?.is_some();
        }
        Ok(())
    }

    /// What inner nodes say of their children.
    fn inner_level(&self, upper: &[Node], lower: &[Node], found: &mut Findings) {
        let inner = |node: &Node| match &node.refs.children {
            NodeChildren::Inner(children) => children.clone(),
            NodeChildren::Group { .. } => Vec::new(),
        };
        let children: Vec<InnerChild> = upper.iter().flat_map(inner).collect();
        for (child, node) in children.iter().zip(lower) {
            let (leaves, live) = match &node.refs.children {
                NodeChildren::Group { leaves, .. } => {
                    (leaves.len() as u64, leaves.iter().map(|l| u64::from(l.live)).sum::<u64>())
                }
                NodeChildren::Inner(below) => {
                    (below.iter().map(|c| c.leaves).sum(), below.iter().map(|c| c.live).sum())
                }
            };
            found.expect((child.leaves, child.live) == (leaves, live), || {
                format!(
                    "node {} has {leaves} leaves and {live} live rows, its parent says otherwise",
                    child.id
                )
            });
        }
    }

    /// The codes of a node's children are those of their centroids.
    fn node_codes(&self, node: &Node) -> Result<()> {
        let Some(centroids) = &node.centroids else { return Ok(()) };
        let width = self.frame.padded() / 2;
        let mut nibbles = vec![0u8; width];
        for i in 0..centroids.len() {
            let centroid = centroids.get(i);
            if centroid.len() != self.ctx.dim() || node.codes.padded() != self.frame.padded() {
                return Err(damaged("node: its blocks are of another dimension"));
            }
            nibbles.fill(0);
            let c = encode_nav_child(&self.frame, centroid, node.codes.r2()[i], &mut nibbles);
            let same = nibbles == node.codes.codes()[i * width..(i + 1) * width]
                && c.scale.to_bits() == node.codes.w()[i].to_bits()
                && c.add.to_bits() == node.codes.add()[i].to_bits();
            if !same {
                return Err(damaged("node: the code of a child is not that of its centroid"));
            }
        }
        Ok(())
    }

    fn group(&self, node: &Node, blocks: &[GroupBlock], leaves: &[LeafChild], sums: &mut Sums) -> Result<()> {
        let io = &self.ctx.io;
        let leaf_refs: Vec<BlockRef> = blocks.iter().map(|b| b.leaf).collect();
        let refine_refs: Vec<BlockRef> = blocks.iter().filter_map(|b| b.refine).collect();
        let read = async { tokio::try_join!(io.blocks(&leaf_refs), io.blocks(&refine_refs)) };
        let (leaf_bytes, refine_bytes) = self.ctx.block(read)?;
        let mut decoded = Vec::with_capacity(blocks.len());
        for (bytes, block) in leaf_bytes.into_iter().zip(&leaf_refs) {
            decoded.push(DecodedLeafBlock::decode(bytes).map_err(|e| undecodable(e, block.pack))?);
        }
        let mut refine = Vec::with_capacity(blocks.len());
        for (bytes, block) in refine_bytes.into_iter().zip(&refine_refs) {
            refine.push(DecodedRefineBlock::decode(bytes).map_err(|e| undecodable(e, block.pack))?);
        }
        let wanted = if self.ctx.tree_config.refine { decoded.len() } else { 0 };
        if refine.len() != wanted {
            return Err(damaged("refine block: a group has too many or too few"));
        }
        for (leaf, refine) in decoded.iter().zip(&refine) {
            let table = |s: &[pando_format::SlotIndex]| -> Vec<(u64, usize, usize, bool)> {
                s.iter().map(|s| (s.leaf, s.n_primary, s.n_secondary, s.kind == SlotKind::Whole)).collect()
            };
            if table(leaf.slots()) != table(refine.slots()) {
                return Err(damaged("refine block: its slots are not those of its leaf block"));
            }
        }
        for (i, child) in leaves.iter().enumerate() {
            let (primaries, secondaries) = rows_of_leaf(child, &decoded)?;
            let live = primaries.iter().filter(|row| !self.dead.contains(**row)).count();
            if live != child.live as usize {
                return Err(damaged("node: the live rows of a leaf are not those that its group counts"));
            }
            self.codes(child, node.centroids.as_ref().map(|c| c.get(i)), &decoded, &refine)?;
            sums.primary_fp = sums.primary_fp.wrapping_add(child.primary_fp);
            sums.secondary_fp = sums.secondary_fp.wrapping_add(child.secondary_fp);
            sums.primaries.extend(primaries);
            sums.secondaries.extend(secondaries);
        }
        Ok(())
    }

    /// A sample of a leaf's rows has the codes that its vectors give.
    fn codes(
        &self,
        child: &LeafChild,
        centroid: Option<&[f32]>,
        blocks: &[DecodedLeafBlock],
        refine: &[DecodedRefineBlock],
    ) -> Result<()> {
        let padded = self.ctx.config().padded();
        let (code, nibbles) = (padded / 8, padded / 2);
        let whole = child.parts.first().map(|p| blocks[usize::from(p.block)].slot(p.slot as usize).centroid);
        let Some(centroid) = whole.filter(|c| Some(*c) == centroid) else {
            return Err(damaged("leaf block: the centroid of a leaf is not the one its group has"));
        };
        for part in &child.parts {
            let slot = blocks[usize::from(part.block)].slot(part.slot as usize);
            let chosen = |i: &usize| *i == 0 || (fingerprint(slot.rows[*i]) as u64).is_multiple_of(SAMPLE);
            let places: Vec<usize> = (0..slot.rows.len()).filter(chosen).collect();
            let rows: Vec<u64> = places.iter().map(|i| slot.rows[*i]).collect();
            // Dead rows have vectors too: a segment keeps every row that is in a leaf.
            let cfg = &self.ctx.tree_config;
            let rotation = self.frame.rotation();
            let again =
                encode_leaf(cfg, &self.params, rotation, &self.ctx.kernels, centroid, &rows, self.vectors)
                    .map_err(tree_error)?;
            let (mut a, mut b) = (vec![0u8; code], vec![0u8; code]);
            for (n, &i) in places.iter().enumerate() {
                unpack_code(&again.packed, padded, n, &mut a);
                unpack_code(slot.packed, padded, i, &mut b);
                let factors = [
                    (again.f_add[n], slot.f_add[i]),
                    (again.f_rescale[n], slot.f_rescale[i]),
                    (again.norm[n], slot.norm[i]),
                ];
                let mut same = a == b && factors.iter().all(|(x, y)| x.to_bits() == y.to_bits());
                if let (Some(again), Some(block)) = (&again.refine, refine.get(usize::from(part.block))) {
                    let stored = block.slot(part.slot as usize);
                    let span = |n: usize| n * nibbles..(n + 1) * nibbles;
                    let factors = [
                        (again.f_add[n], stored.f_add[i]),
                        (again.f_rescale[n], stored.f_rescale[i]),
                        (again.f_error[n], stored.f_error[i]),
                    ];
                    same &= again.nibbles[span(n)] == stored.nibbles[span(i)]
                        && factors.iter().all(|(x, y)| x.to_bits() == y.to_bits());
                }
                if !same {
                    return Err(damaged("leaf block: the code of a row is not that of its vector"));
                }
            }
        }
        Ok(())
    }
}
