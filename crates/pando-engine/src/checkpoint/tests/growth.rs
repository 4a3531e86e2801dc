//! What a checkpoint that changes a hundredth of the rows writes: counted bytes of packs, segments and manifest.

use std::collections::BTreeMap;

use pando_format::{BlockRef, DecodedLeafBlock, Manifest, NodeChildren, RecordId, SlotKind};
use pando_kernels::Metric;
use pando_store::{ObjectKind, Store};

use super::GIB;
use super::harness::{Log, Numbers, Op, around, config};
use crate::checkpoint::Surroundings;

/// Checkpoints over which is averaged.
const ROUNDS: u64 = 20;

/// What the hundredth is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Churn {
    /// New records.
    New,
    /// Half new records, half new versions of old ones.
    Mixed,
    /// New versions of old records.
    Replaced,
    /// Deletes.
    Deleted,
}

/// Bytes written by the checkpoints of a measurement.
#[derive(Debug, Default)]
pub struct Written {
    /// Mean of bytes written / index bytes before.
    pub share: f64,
    /// Sums by what it was.
    pub parts: BTreeMap<String, u64>,
}

impl Written {
    fn add(&mut self, part: impl Into<String>, bytes: u64) {
        *self.parts.entry(part.into()).or_default() += bytes;
    }

    /// Adds the objects that a root has and its parent has not.
    async fn add_root(&mut self, log: &Log, manifest: &Manifest) {
        for pack in manifest.packs.iter().filter(|p| p.object.depth == manifest.depth) {
            self.add(format!("pack {:?}", pack.kind), pack.bytes);
        }
        for segment in manifest.segments.iter().filter(|s| s.object.depth == manifest.depth) {
            self.add("segments", segment.bytes);
        }
        let io = log.io();
        let nodes = io.nodes(manifest.tree.as_ref().unwrap(), true).await.unwrap();
        let new = |block: &BlockRef| block.pack.depth == manifest.depth;
        for node in nodes.levels.iter().flatten() {
            if let Some(place) = node.place {
                for (name, block) in
                    [("refs", place.refs), ("codes", place.codes), ("exact", place.centroids)]
                {
                    if new(&block) {
                        self.add(format!("  node {} {name}", node.refs.level), block.len.into());
                    }
                }
            }
            let NodeChildren::Group { blocks, .. } = &node.refs.children else { continue };
            for (age, block) in blocks.iter().enumerate().filter(|(_, b)| new(&b.leaf)) {
                let age = if age == 0 { "base" } else { "delta" };
                self.add(format!("  {age} leaf"), block.leaf.len.into());
                self.add(format!("  {age} refine"), block.refine.map_or(0, |r| r.len.into()));
                let decoded = DecodedLeafBlock::decode(io.block(&block.leaf).await.unwrap()).unwrap();
                for slot in decoded.slots() {
                    let kind = if slot.kind == SlotKind::Whole { "whole" } else { "append" };
                    self.add(format!("  {age} {kind} slots"), 1);
                    self.add(format!("  {age} {kind} rows"), (slot.n_primary + slot.n_secondary) as u64);
                }
            }
        }
    }

    fn print(&self, index: u64) {
        for (part, bytes) in &self.parts {
            let mean = *bytes as f64 / ROUNDS as f64;
            println!("    {part:<24}{mean:>12.0}{:>8.2}%", 100.0 * mean / index as f64);
        }
    }
}

/// Builds a root of `rows` records, then lets [`ROUNDS`] checkpoints change a hundredth of them each.
pub async fn measure(
    log: &mut Log,
    around: &Surroundings,
    churn: Churn,
    rows: u64,
    vector: &mut dyn FnMut() -> Vec<f32>,
) -> Written {
    for start in (0..rows).step_by(2_000) {
        let records = (start..rows.min(start + 2_000)).map(|id| (RecordId::U64(id), vector())).collect();
        log.write(vec![Op::Upsert(records)]).await;
    }
    let mut manifest = log.checkpoint(around).await;
    let mut written = Written::default();
    let (mut next, mut numbers) = (rows, Numbers::new(99));
    for _ in 0..ROUNDS {
        let step = rows / 100;
        let mut upserts: Vec<(RecordId, Vec<f32>)> = Vec::new();
        let mut deletes: Vec<RecordId> = Vec::new();
        for i in 0..step {
            let new = churn == Churn::New || churn == Churn::Mixed && i % 2 == 0;
            let id = if new { next } else { numbers.below(next) };
            next += u64::from(new);
            match churn {
                Churn::Deleted => deletes.push(RecordId::U64(id)),
                _ => upserts.push((RecordId::U64(id), vector())),
            }
        }
        let op = if deletes.is_empty() { Op::Upsert(upserts) } else { Op::Delete(deletes) };
        log.write(vec![op]).await;
        let before = around.store.counters();
        let index = manifest.index_bytes();
        manifest = log.checkpoint(around).await;
        let after = around.store.counters();
        let of = |kind| after.of(kind).bytes_written - before.of(kind).bytes_written;
        let all = of(ObjectKind::Pack) + of(ObjectKind::Segment) + of(ObjectKind::Root);
        written.share += all as f64 / index as f64 / ROUNDS as f64;
        written.add("all", all);
        written.add("root", of(ObjectKind::Root));
        written.add_root(log, &manifest).await;
    }
    let live: u64 = manifest.packs.iter().map(|p| p.live_bytes).sum();
    println!(
        "{churn:?}: {rows} rows x {}, {:.2}% of the index written, index {} ({} live), {} leaves, {} segments",
        log.record.config.dim,
        100.0 * written.share,
        manifest.index_bytes(),
        live,
        manifest.leaf_count(),
        manifest.segments.len(),
    );
    written.print(manifest.index_bytes());
    written
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundredth_writes_less_than_a_tenth_of_the_index() {
    const DIM: usize = 96;
    for churn in [Churn::New, Churn::Mixed] {
        let mut cfg = config(DIM as u32, Metric::Cosine);
        cfg.small_limit = 10_000;
        let mut log = Log::new(Store::in_memory(), cfg);
        let around = around(&log, 2, GIB);
        let mut numbers = Numbers::new(3);
        let mut vector = || numbers.vector(DIM, 2_000);
        let written = measure(&mut log, &around, churn, 20_000, &mut vector).await;
        log.check(&around).await;
        assert!(written.share < 0.10, "{churn:?}: {:.1}% of the index", 100.0 * written.share);
    }
}

/// Rows of an .npy file of f16 in C order.
fn read_npy(path: &str) -> (usize, Vec<f32>) {
    let bytes = std::fs::read(path).unwrap();
    let header = u16::from_le_bytes([bytes[8], bytes[9]]) as usize;
    let text = String::from_utf8_lossy(&bytes[10..10 + header]).into_owned();
    let shape = text.split("'shape': (").nth(1).unwrap().split(')').next().unwrap();
    let dim = shape.split(',').nth(1).unwrap().trim().parse().unwrap();
    let f16 = |b: &[u8]| half(u16::from_le_bytes([b[0], b[1]]));
    (dim, bytes[10 + header..].chunks_exact(2).map(f16).collect())
}

fn half(bits: u16) -> f32 {
    let (sign, exp, frac) = (u32::from(bits >> 15), u32::from(bits >> 10 & 31), u32::from(bits & 1023));
    let magnitude = match exp {
        0 => frac as f32 / 16_777_216.0,
        _ => f32::from_bits((exp + 112) << 23 | frac << 13),
    };
    if sign == 1 { -magnitude } else { magnitude }
}

/// The same with real vectors: `PANDO_MEASURE=<base.npy f16>`, `PANDO_ROWS` of them at first (five sixths of all).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "figures, by command"]
async fn measure_growth_by_a_hundredth() {
    let (dim, values) = read_npy(&std::env::var("PANDO_MEASURE").unwrap());
    let rows = std::env::var("PANDO_ROWS").map_or(values.len() / dim * 5 / 6, |n| n.parse().unwrap());
    for churn in [Churn::New, Churn::Mixed, Churn::Replaced, Churn::Deleted] {
        let dir = tempfile::tempdir().unwrap();
        let store = pando_store::Store::open_local(dir.path(), pando_store::StoreOptions::default()).unwrap();
        let mut cfg = config(dim as u32, Metric::Cosine);
        cfg.small_limit = 10_000;
        let mut log = Log::new(store, cfg);
        let around = around(&log, 2, GIB);
        let mut vectors = values.chunks_exact(dim);
        let mut vector = || vectors.next().unwrap().to_vec();
        measure(&mut log, &around, churn, rows as u64, &mut vector).await;
    }
}
