//! One checkpoint from beginning to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pando_format::{Calibration, Head, Manifest, PlanContents, RootId, RowSet, TreeInfo};
use pando_tree::search::Frame;
use pando_tree::{Env, Totals, Tree};

use super::context::{Context, Surroundings};
use super::encode::{self, BlockWriter, GroupPlan, NodeWriter, WrittenTree};
use super::fold::{Folded, fold};
use super::gate::{self, Dead};
use super::live::{Condemned, LiveBytes};
use super::packs::Packs;
use super::parent::{self, Parent};
use super::plan::{Base, plan};
use super::publish::{Race, create_head, floor, head, store_manifest};
use super::staging::{self, Staged};
use super::vectors::{Vectors, tree_error};
use super::{calibrate, deaths, ids, lookup, segments, window};
use crate::error::{Error, Result};
use crate::rootio::{RootIo, SegmentTable};

/// A root that was made.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Its head.
    pub head: Head,
    /// Its id.
    pub root: RootId,
    /// Its manifest.
    pub manifest: Arc<Manifest>,
    /// Entries of the log that were skipped because they contradict it, in words.
    pub skipped: Vec<String>,
}

/// What a checkpoint came to.
#[derive(Clone, Debug)]
pub enum CheckpointOutcome {
    /// The log has no entry past the head.
    NothingToDo,
    /// A new root is published.
    Published(Box<Finished>),
    /// Another head took the generation; this work is dropped. The caller goes on from that head.
    LostRace(Box<Head>),
}

/// Sets the flag when the caller goes away.
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs the checkpoint that follows `newest` (the newest head, `None` before the first). `log_end`: a log entry that is
/// known to exist (0: none), to save probing.
///
/// Dropping the future stops the work soon; what it stored is harmless and will be found when it is repeated.
pub async fn run_checkpoint(
    around: &Surroundings,
    newest: Option<&Head>,
    log_end: u64,
) -> Result<CheckpointOutcome> {
    if newest.is_some_and(|head| head.closed.is_some()) {
        return Ok(CheckpointOutcome::NothingToDo);
    }
    let io = RootIo::new(around.store.clone(), around.record.clone());
    let base = Base::of(&io, newest);
    let Some(contents) = plan(&io, &base, log_end).await? else { return Ok(CheckpointOutcome::NothingToDo) };
    let flag = Arc::new(AtomicBool::new(false));
    let guard = CancelOnDrop(flag.clone());
    let ctx = Context::new(around, base.next_depth(), flag);
    let pool = around.pool.clone();
    let work = move || make_root(&ctx, &base, contents).map(|made| (made, ctx.io));
    let done = pool.run_blocking(work).await;
    drop(guard);
    let (made, io) = done??;
    let (root, len) = store_manifest(&io, &made.manifest).await?;
    let floor = floor(&io, newest, made.manifest.depth, &root).await?;
    let head = head(&io, &base, &made.manifest, root, len, floor, made.closed);
    match create_head(&io, &head).await? {
        Race::Won(head) => {
            let (manifest, skipped) = (Arc::new(made.manifest), made.skipped);
            Ok(CheckpointOutcome::Published(Box::new(Finished { head, root, manifest, skipped })))
        }
        Race::Lost(head) => Ok(CheckpointOutcome::LostRace(Box::new(head))),
    }
}

/// A root of which everything but the manifest is stored.
struct Made {
    manifest: Manifest,
    closed: Option<pando_format::Closing>,
    skipped: Vec<String>,
}

/// The parent root as the stages see it.
struct Before {
    root: Option<RootId>,
    manifest: Option<Manifest>,
    segments: SegmentTable,
    dead: RowSet,
}

impl Before {
    fn read(ctx: &Context, base: &Base) -> Result<Self> {
        let Some((root, depth)) = base.root else {
            return Ok(Self {
                root: None,
                manifest: None,
                segments: SegmentTable::default(),
                dead: RowSet::new(),
            });
        };
        let (manifest, _) = ctx.block(ctx.io.manifest(depth, &root))?;
        let segments = ctx.block(SegmentTable::open(&ctx.io, &manifest.segments))?;
        let dead = ctx.block(ctx.io.deaths(&manifest.deaths))?;
        Ok(Self { root: Some(root), manifest: Some(manifest), segments, dead })
    }

    fn live(&self) -> (u64, u128) {
        self.manifest.as_ref().map_or((0, 0), |m| (m.counts.live, m.fingerprints.live))
    }

    /// All rows in its segments.
    fn rows(&self) -> RowSet {
        self.segments.segments().iter().fold(RowSet::new(), |all, s| all | segments::rows_of(s.side()))
    }
}

/// The tree after the plan.
struct After {
    tree: Tree,
    /// The parent's stored tree, unless this one was built anew.
    parent: Option<Parent>,
    totals: Totals,
    rows_at_build: u64,
}

fn make_root(ctx: &Context, base: &Base, contents: PlanContents) -> Result<Made> {
    let before = Before::read(ctx, base)?;
    let parent = before.manifest.as_ref();
    let attributes = parent.map_or_else(Default::default, |p| p.attributes.clone());
    let mut folded = fold(ctx, base, &contents, attributes, ctx.memory / 4)?;
    let newly_dead = match parent {
        Some(parent) => lookup::newly_dead(ctx, parent, &before.segments, &before.dead, &folded.ids)?,
        None => RowSet::new(),
    };
    let dead = &before.dead | &newly_dead;
    let staged = staging::stage(ctx, &mut folded)?;
    let vectors = Vectors::new(ctx, &before.segments, &staged, ctx.memory / 4);
    let after = grow(ctx, &before, &folded, &newly_dead, &dead, &vectors)?;
    let plan = Carried { contents, before: &before, newly_dead: newly_dead.len(), dead, vectors: &vectors };
    plan.write(ctx, folded, staged, after)
}

/// Builds or advances the tree and checks law 4 on it.
fn grow(
    ctx: &Context,
    before: &Before,
    folded: &Folded,
    newly_dead: &RowSet,
    dead: &RowSet,
    vectors: &Vectors,
) -> Result<After> {
    let survivors = &folded.ids.survivors;
    let (live_before, fp_before) = before.live();
    let live = live_before - newly_dead.len() + survivors.len();
    let live_fp = fp_before
        .wrapping_add(gate::fingerprint_of(survivors))
        .wrapping_sub(gate::fingerprint_of(newly_dead));
    let progress = |p: pando_tree::Progress| {
        use pando_tree::Stage;
        let stage = match p.stage {
            Stage::Sample => "sampling",
            Stage::Cluster => "clustering",
            Stage::Route => "routing rows",
            Stage::Balance => "balancing",
            Stage::Scrub => "dropping dead rows",
            Stage::Secondaries => "placing second copies",
            Stage::Nodes => "grouping leaves",
        };
        ctx.report(stage, p.done, p.total);
    };
    let env = Env {
        kernels: ctx.kernels,
        pool: &ctx.pool,
        vectors,
        memory: (ctx.memory / 3) as usize,
        progress: &progress,
        cancel: &ctx.cancel,
    };
    let cfg = &ctx.tree_config;
    let info = before.manifest.as_ref().and_then(|m| m.tree.as_ref());
    let loaded = info.map(|info| parent::load(ctx, info)).transpose()?;
    let rebuilt =
        loaded.as_ref().is_none_or(|(tree, _)| pando_tree::should_rebuild(cfg, tree, live_before, live));
    let (tree, parent, rows_at_build) = match loaded {
        Some((tree, parent)) if !rebuilt => {
            let new: Vec<u64> = survivors.iter().collect();
            let (tree, _) = pando_tree::advance(cfg, tree, &new, &Dead(dead), &env).map_err(tree_error)?;
            (tree, Some(parent), info.map_or(live, |i| i.rows_at_build))
        }
        _ => {
            let rows = (before.rows() - dead) | survivors;
            let rows: Vec<u64> = rows.iter().collect();
            (pando_tree::build(cfg, &rows, &env).map_err(tree_error)?, None, live)
        }
    };
    let totals = gate::check_tree(cfg, &tree, dead, live, live_fp)?;
    Ok(After { tree, parent, totals, rows_at_build })
}

/// What the writing of a root needs besides the tree.
struct Carried<'a> {
    contents: PlanContents,
    before: &'a Before,
    /// How many rows of the parent died.
    newly_dead: u64,
    /// All dead rows.
    dead: RowSet,
    vectors: &'a Vectors,
}

impl Carried<'_> {
    /// Writes segments and blocks; the manifest.
    fn write(self, ctx: &Context, folded: Folded, staged: Staged, after: After) -> Result<Made> {
        let parent = self.before.manifest.as_ref();
        let condemned = Condemned::of(parent);
        let After { tree, parent: stored_tree, totals, rows_at_build } = after;
        let small = tree.leaves.is_empty() || tree.params.is_small();
        let mut packs = Packs::new(ctx, small);
        let params = &tree.params;
        let (cfg, dead) = (&ctx.tree_config, &self.dead);
        let frame = Arc::new(Frame::new(ctx.kernels, cfg.metric, cfg.seed, params.mean.clone()));
        let in_leaves = gate::dead_in_leaves(&tree, dead);

        let plans: Vec<GroupPlan> = tree
            .groups
            .values()
            .map(|group| encode::plan(stored_tree.as_ref(), &tree, group, &condemned))
            .collect();
        let writer = BlockWriter {
            ctx,
            tree: &tree,
            parent: stored_tree.as_ref(),
            vectors: self.vectors,
            rotation: frame.rotation(),
            condemned: &condemned,
            memory: ctx.memory / 4,
        };
        let blocks = writer.write(&plans, &mut packs)?;
        let change = segments::Change {
            parent,
            old: &self.before.segments,
            survivors: &folded.ids.survivors,
            dead,
            droppable: &(dead - &in_leaves),
            small,
            attributes: &folded.attributes,
            condemned: &condemned,
        };
        let segments = segments::write(ctx, &change, staged, &mut packs)?;
        let dead_after = dead & (&in_leaves | &segments.rows);
        let rows = &segments.rows;
        let lives = |row: u64| rows.contains(row) && !dead.contains(row);
        let runs = ids::write(ctx, parent, &folded.ids, &condemned, &lives, &mut packs)?;
        let deaths = deaths::write(parent, &self.before.dead, &dead_after, &condemned, &mut packs)?;
        let window = window::write(ctx, parent, folded.nonces, folded.keys, &condemned, &mut packs)?;
        let nodes = NodeWriter {
            ctx,
            tree: &tree,
            parent: stored_tree.as_ref(),
            frame: &frame,
            dead,
            condemned: &condemned,
        };
        let has_tree = !tree.leaves.is_empty();
        let centroids = if has_tree { Some(nodes.centroids(&mut packs)?) } else { None };
        packs.seal_all()?;

        let mut live = LiveBytes::default();
        let written = match &centroids {
            Some(places) => {
                Some(nodes.write(&blocks, nodes.leaf_children(), places, &mut packs, &mut live)?)
            }
            None => None,
        };
        let segments_after =
            segments.drafts.into_iter().map(|d| d.entry(&packs)).collect::<Result<Vec<_>>>()?;
        let runs = runs.into_iter().map(|r| r.run(&packs)).collect::<Result<Vec<_>>>()?;
        let deaths = deaths.deaths(&packs)?;
        let window = window.into_iter().map(|w| w.entry(&packs)).collect::<Result<Vec<_>>>()?;
        live.add_tables(&segments_after, &runs, &deaths, &window);
        let groups = written.as_ref().map_or(&[][..], |w| &w.groups);
        let cumulative = (folded.cumulative_rows, folded.cumulative_bytes);
        let (counts, fingerprints) =
            gate::check_written(&totals, groups, &segments_after, dead_after.len(), cumulative)?;
        let changed = self.newly_dead + folded.ids.survivors.len();
        let info = match written {
            Some(written) => {
                let mut info = tree_info(&tree, written, rows_at_build);
                let old = parent.and_then(|p| p.tree.as_ref()).map(|t| &t.calibration);
                let old = old.filter(|_| stored_tree.is_some());
                info.calibration = match calibrate::carried(old, changed) {
                    Some(carried) => carried,
                    None if small => Calibration::default(),
                    None => {
                        let stored = ctx.block(ctx.io.nodes(&info, true))?;
                        let live_rows =
                            || Box::new((rows - dead).into_iter()) as Box<dyn Iterator<Item = u64>>;
                        let dead = |row: u64| dead.contains(row);
                        calibrate::compute(
                            ctx,
                            frame,
                            &tree,
                            &stored,
                            &live_rows,
                            counts.live,
                            &dead,
                            self.vectors,
                        )?
                    }
                };
                Some(info)
            }
            None => None,
        };
        let packs = live.table(parent, packs.sealed());
        let manifest = Manifest {
            algorithm: self.contents.algorithm,
            config: ctx.config().clone(),
            depth: ctx.depth,
            parent: self.before.root,
            sequence: self.contents.end_sequence,
            plan: self.contents,
            next_row: folded.next_row,
            counts,
            fingerprints,
            tree: info,
            packs: packs.ok_or_else(|| Error::internal("a block lies in a pack that nobody knows"))?,
            segments: segments_after,
            id_runs: runs,
            deaths,
            attributes: folded.attributes,
            window,
        };
        Ok(Made { manifest, closed: folded.closed, skipped: folded.skipped })
    }
}

fn tree_info(tree: &Tree, written: WrittenTree, rows_at_build: u64) -> TreeInfo {
    TreeInfo {
        split_size: tree.params.split_size,
        mean: tree.params.mean.clone(),
        bands: tree.params.bands.clone(),
        next_id: tree.next_id,
        scrub_cursor: tree.scrub_cursor,
        levels: written.levels,
        leaves: tree.leaves.len() as u64,
        rows_at_build,
        calibration: Calibration::default(),
        top: written.top,
    }
}
