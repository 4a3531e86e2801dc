//! Reads everything of a root again with the production decoders and checks it (law 4): checksums, counts, fingerprints,
//! every live row in exactly one leaf, every secondary with its primary, ids that resolve to their rows, and codes of a
//! sample of rows encoded anew.

mod ids;
mod segments;
#[cfg(test)]
mod tests;
mod tree;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pando_format::{Manifest, PackEntry, RootId, RowSet};

use crate::api::VerifyReport;
use crate::checkpoint::{Context, LiveBytes, Staged, Surroundings, Vectors};
use crate::error::{ErrorKind, Result};
use crate::rootio::{SegmentTable, damaged, stored, undecodable};

/// Bytes of a pack in memory at a time.
const READ: u64 = 8 << 20;
/// Problems listed at most; a root with more is not better known by more.
const MAX_PROBLEMS: usize = 100;

/// What was found so far.
pub(crate) struct Findings {
    blocks: u64,
    problems: Vec<String>,
    more: u64,
    live: LiveBytes,
}

impl Findings {
    /// Notes a problem, in words.
    fn problem(&mut self, what: impl Into<String>) {
        if self.problems.len() < MAX_PROBLEMS { self.problems.push(what.into()) } else { self.more += 1 }
    }

    /// Notes a problem unless `holds`.
    fn expect(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.problem(what());
        }
    }

    /// The value, or its error noted as a problem. What is no fault of stored data ends the verification.
    fn noted<T>(&mut self, result: Result<T>) -> Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(e) if e.kind == ErrorKind::DataLoss => {
                tracing::error!(internal = e.internal.as_deref(), "verify: {e}");
                self.problem(e.to_string());
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }
}

/// Verifies a root of the collection of `around`. Problems of stored data are reported, not returned as errors.
pub async fn verify(around: &Surroundings, depth: u64, root: RootId) -> Result<VerifyReport> {
    let flag = Arc::new(AtomicBool::new(false));
    let ctx = Context::new(around, depth, flag);
    let pool = around.pool.clone();
    pool.run_blocking(move || run(&ctx, depth, &root)).await?
}

fn run(ctx: &Context, depth: u64, root: &RootId) -> Result<VerifyReport> {
    let mut found = Findings { blocks: 0, problems: Vec::new(), more: 0, live: LiveBytes::default() };
    let mut records = 0;
    if let Some((manifest, _)) = found.noted(ctx.block(ctx.io.manifest(depth, root)))? {
        records = manifest.counts.live;
        verify_manifest(ctx, &manifest, &mut found)?;
    }
    let Findings { blocks, mut problems, more, .. } = found;
    if more > 0 {
        problems.push(format!("and {more} more problems"));
    }
    Ok(VerifyReport { ok: problems.is_empty(), root: Some(*root), records, blocks, problems })
}

fn verify_manifest(ctx: &Context, manifest: &Manifest, found: &mut Findings) -> Result<()> {
    let config = ctx.config();
    found.expect(manifest.config == *config, || {
        "the root has another configuration than the collection".into()
    });
    found.live.add_tables(&manifest.segments, &manifest.id_runs, &manifest.deaths, &manifest.window);
    let dead = found.noted(ctx.block(ctx.io.deaths(&manifest.deaths)))?;
    found.blocks += (manifest.deaths.chunks.len() + manifest.deaths.deltas.len()) as u64;
    for entry in &manifest.window {
        found.noted(ctx.block(ctx.io.window(entry)))?;
        found.blocks += 1;
    }
    let table = found.noted(ctx.block(SegmentTable::open(&ctx.io, &manifest.segments)))?;
    found.blocks += manifest.segments.len() as u64;
    if let (Some(dead), Some(table)) = (dead, table) {
        found.expect(dead.len() == manifest.counts.dead, || {
            format!("{} dead rows are stored, the root counts {}", dead.len(), manifest.counts.dead)
        });
        let held = segments::verify(ctx, manifest, &table, &dead, found)?;
        ids::verify(ctx, manifest, &held, &dead, found)?;
        let vectors = Vectors::new(ctx, &table, &Staged::Nothing, ctx.memory / 4);
        tree::verify(ctx, manifest, &held.rows, &dead, &vectors, found)?;
    }
    verify_packs(ctx, manifest, found)
}

/// Every pack is there and the one it is named as, and as much of it is reached as the manifest says.
fn verify_packs(ctx: &Context, manifest: &Manifest, found: &mut Findings) -> Result<()> {
    for (i, pack) in manifest.packs.iter().enumerate() {
        ctx.report("verifying packs", i as u64, manifest.packs.len() as u64);
        found.noted(whole_pack(ctx, pack))?;
    }
    // With blocks missing the count of what is reached means nothing.
    if found.problems.is_empty() {
        let table = found.live.table(Some(manifest), &[]);
        let same = table.as_ref() == Some(&manifest.packs);
        found.expect(same, || "the root's table of packs does not say what it reaches".into());
    }
    Ok(())
}

/// A pack has its length, its header, and the hash that it is named by.
fn whole_pack(ctx: &Context, pack: &PackEntry) -> Result<()> {
    let (io, key) = (&ctx.io, ctx.io.pack_key(&pack.object));
    let size = ctx.block(io.store().head(&key)).map_err(stored)?.size;
    if size != pack.bytes {
        return Err(damaged(format!("pack: it has {size} bytes, the root says {}", pack.bytes)));
    }
    let mut hasher = blake3::Hasher::new();
    let (mut at, mut header) = (0, Ok(()));
    while at < size {
        ctx.check_cancel()?;
        let end = size.min(at + READ);
        let bytes = ctx.block(io.store().get_range(&key, at..end)).map_err(stored)?;
        if at == 0 {
            header = pando_format::check_pack_header(&bytes);
        }
        hasher.update(&bytes);
        at = end;
    }
    if *hasher.finalize().as_bytes() != pack.object.hash.0 {
        return Err(damaged("pack: it is not the one it is named as"));
    }
    // Only now: a version that was flipped must not read as one of a newer release.
    header.map_err(|e| undecodable(e, &key))
}

/// Rows of the segments.
pub(crate) struct Held {
    /// All of them.
    pub rows: RowSet,
    /// Sum over live rows of a hash of (id hash, row).
    pub pairs: u128,
    /// Whether every segment could be read to the end.
    pub whole: bool,
}

/// Binds an id to a row, so that sums over sets of pairs can be compared.
fn pair_print(id_hash: u64, row: u64) -> u128 {
    let mut input = [0u8; 16];
    input[..8].copy_from_slice(&id_hash.to_le_bytes());
    input[8..].copy_from_slice(&row.to_le_bytes());
    let hash = blake3::hash(&input);
    u128::from_le_bytes(*hash.as_bytes().first_chunk().expect("a hash has 32 bytes"))
}
