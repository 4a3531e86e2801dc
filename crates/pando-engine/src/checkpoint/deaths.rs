//! Dead rows of the new root, as blocks: a delta for each checkpoint, folded into chunks of 65,536 row numbers.

use std::collections::BTreeMap;

use pando_format::{
    DeathBlock, DeathChunk, DeathDelta, Deaths, Hash, Manifest, PackKind, RowSet, Stored, chunk_of,
};

use super::constants::DEATH_DELTAS;
use super::encode::Place;
use super::live::Condemned;
use super::packs::Packs;
use crate::error::{Error, Result};

/// The deaths of the new root, before packs are sealed.
#[derive(Default)]
pub struct DeathDraft {
    chunks: Vec<(u64, u32, Place)>,
    deltas: Vec<(u64, Place)>,
}

fn encode(rows: RowSet) -> Result<Vec<u8>> {
    DeathBlock { rows }.encode().map_err(|e| Error::internal(format!("encoding dead rows: {e}")))
}

/// Writes what changed from `old` (the parent's dead rows) to `new`.
pub fn write(
    parent: Option<&Manifest>,
    old: &RowSet,
    new: &RowSet,
    condemned: &Condemned,
    packs: &mut Packs<'_>,
) -> Result<DeathDraft> {
    let empty = Deaths::default();
    let held = parent.map_or(&empty, |p| &p.deaths);
    let added = new - old;
    let moves = held.chunks.iter().map(|c| &c.block).chain(held.deltas.iter().map(|d| &d.block));
    let stays = old.is_subset(new)
        && held.deltas.len() < DEATH_DELTAS
        && !moves.into_iter().any(|b| condemned.has(&b.pack));
    let mut draft = DeathDraft::default();
    if stays {
        draft.chunks = held.chunks.iter().map(|c| (c.chunk, c.rows, Place::Kept(c.block))).collect();
        draft.deltas = held.deltas.iter().map(|d| (d.rows, Place::Kept(d.block))).collect();
        if !added.is_empty() {
            let rows = added.len();
            draft.deltas.push((rows, Place::New(packs.append(PackKind::Side, &encode(added)?)?)));
        }
        return Ok(draft);
    }
    let known: BTreeMap<u64, &DeathChunk> = held.chunks.iter().map(|c| (c.chunk, c)).collect();
    let mut next = new.min();
    while let Some(row) = next {
        let chunk = row >> 16;
        let lows = chunk_of(new, chunk);
        let block = encode(lows.iter().map(|low| chunk << 16 | u64::from(low)).collect())?;
        let kept =
            known.get(&chunk).filter(|c| c.block.hash == Hash::of(&block) && !condemned.has(&c.block.pack));
        let place = match kept {
            Some(chunk) => Place::Kept(chunk.block),
            None => Place::New(packs.append(PackKind::Side, &block)?),
        };
        draft.chunks.push((chunk, lows.len() as u32, place));
        let mut rows = new.iter();
        rows.advance_to((chunk + 1) << 16);
        next = rows.next();
    }
    Ok(draft)
}

impl DeathDraft {
    /// The manifest's table, once packs are sealed.
    pub fn deaths(self, packs: &Packs<'_>) -> Result<Deaths> {
        let chunk = |(chunk, rows, place): (u64, u32, Place)| {
            Ok(DeathChunk { chunk, rows, block: place.resolve(packs)? })
        };
        let delta = |(rows, place): (u64, Place)| Ok(DeathDelta { rows, block: place.resolve(packs)? });
        Ok(Deaths {
            chunks: self.chunks.into_iter().map(chunk).collect::<Result<_>>()?,
            deltas: self.deltas.into_iter().map(delta).collect::<Result<_>>()?,
        })
    }
}
