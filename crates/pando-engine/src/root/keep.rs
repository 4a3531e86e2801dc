//! What stays in memory with an open root, as far as the budget goes. By what a search reads of each byte: first the leaf
//! blocks (every search scans some, from end to end), then ids (eight bytes a row, asked for the rows of each answer), then
//! refine blocks (200 bytes a copy, read for rows that survive the scan), then vectors (read for the last few). Where a kind
//! ends the order is that of the tree, and for rows the newest segment first: the same from run to run.

use std::sync::Arc;

use bytes::Bytes;
use pando_format::{AlignedBytes, BlockRef, DecodedLeafBlock, DecodedRefineBlock};

use super::OpenRoot;
use super::leaves::{GroupEntry, Kept};
use super::vectors::{KeptIds, KeptVectors};
use crate::arena::Arena;
use crate::environment::Reservation;
use crate::error::Result;
use crate::rootio::undecodable;

/// Blocks that are read together.
const CHUNK_BYTES: u64 = 2 << 20;
/// Batches whose ids are read together.
const CHUNK_BATCHES: usize = 16;
/// What slot tables and filled-up codes add to the bytes of a block, at most about 1/32: for the question whether all fits.
const TABLES: u64 = 32;
/// The part of the budget that vectors leave.
const LEFT: u64 = 32;

/// Blocks of a group that were read, and room for them.
struct Read {
    group: usize,
    blocks: Vec<Arc<AlignedBytes>>,
    reservation: Reservation,
}

impl OpenRoot {
    /// Loads leaves, ids, refine codes and vectors into memory until all are there or the budget is full.
    pub async fn warm(&self) -> Result<()> {
        if self.bytes_to_keep() > self.room_for_vectors() {
            // What does not stay will be read in parts: room for the checksums of parts, before the rest takes all.
            self.reserve_sums();
        }
        let _ = self.keep_leaves().await?
            && self.keep_ids().await?
            && self.keep_refine().await?
            && self.keep_vectors().await?;
        Ok(())
    }

    /// Bytes of the budget that vectors may still take: a little is left for what the next root has more of, which is worth
    /// more, and which they would not make way for.
    fn room_for_vectors(&self) -> u64 {
        let limit = self.env.resident.limit();
        (limit - limit / LEFT).saturating_sub(self.env.resident.used())
    }

    /// Bytes that it takes to keep all that is not kept yet.
    fn bytes_to_keep(&self) -> u64 {
        let mut bytes = 0;
        for entry in &self.groups {
            let leaf = entry.blocks.iter().map(|b| u64::from(b.leaf.len)).sum::<u64>();
            let refine = entry.blocks.iter().filter_map(|b| b.refine).map(|r| u64::from(r.len)).sum::<u64>();
            bytes += if entry.leaf.get().is_some() { 0 } else { leaf + leaf / TABLES };
            bytes += if entry.refine.get().is_some() { 0 } else { refine + refine / TABLES };
        }
        for segment in &self.segments {
            let side = segment.side();
            for batch in 0..side.batches.len() {
                let (vectors, ids) = (side.vectors_range(batch), side.ids_range(batch));
                bytes += if segment.ids(batch).is_some() { 0 } else { ids.end - ids.start };
                bytes += if segment.kept(batch).is_some() { 0 } else { vectors.end - vectors.start };
            }
        }
        bytes
    }

    fn reserve_sums(&self) {
        for segment in &self.segments {
            segment.sums(&self.env.resident);
        }
        for entry in &self.groups {
            if entry.leaf.get().is_none() || entry.refine.get().is_none() {
                self.maps(entry);
            }
        }
    }

    /// Reads blocks of the next groups from `from` on, each with room for them; `blocks` says which a group lacks. Nothing: there
    /// is no room for any.
    async fn next_chunk(
        &self,
        from: &mut usize,
        blocks: impl Fn(&GroupEntry) -> Vec<BlockRef>,
    ) -> Result<Option<Vec<Read>>> {
        let (begin, mut bytes) = (*from, 0);
        let (mut all, mut chunk) = (Vec::new(), Vec::new());
        while *from < self.groups.len() && bytes < CHUNK_BYTES {
            let blocks = blocks(&self.groups[*from]);
            if !blocks.is_empty() {
                let len = blocks.iter().map(|b| u64::from(b.len)).sum();
                let Some(reservation) = self.env.resident.reserve(len) else { break };
                bytes += len;
                chunk.push((*from, blocks.len(), reservation));
                all.extend(blocks);
            }
            *from += 1;
        }
        if *from == begin {
            return Ok(None);
        }
        let mut read = self.io.blocks_in(&all, Some(&self.env.arena)).await?.into_iter();
        let with_bytes =
            |(group, n, reservation)| Read { group, blocks: read.by_ref().take(n).collect(), reservation };
        Ok(Some(chunk.into_iter().map(with_bytes).collect()))
    }

    /// `false`: there is no room for more.
    async fn keep_leaves(&self) -> Result<bool> {
        let mut from = 0;
        while from < self.groups.len() {
            let missing = |entry: &GroupEntry| match entry.leaf.get() {
                Some(_) => Vec::new(),
                None => entry.blocks.iter().map(|b| b.leaf).collect(),
            };
            let Some(chunk) = self.next_chunk(&mut from, missing).await? else { return Ok(false) };
            for Read { group, blocks: read, mut reservation } in chunk {
                let entry = &self.groups[group];
                let mut blocks = Vec::with_capacity(read.len());
                for (number, (block, bytes)) in entry.blocks.iter().zip(read).enumerate() {
                    let decoded =
                        DecodedLeafBlock::decode(bytes).map_err(|e| undecodable(e, block.leaf.pack))?;
                    entry.check_leaf(number, decoded.slots())?;
                    blocks.push(decoded);
                }
                if !reservation.resize(blocks.iter().map(|b| b.memory() as u64).sum()) {
                    return Ok(false);
                }
                let _ = entry.leaf.set(Arc::new(Kept { blocks, _reservation: reservation }));
            }
        }
        Ok(true)
    }

    /// `false`: there is no room for more. All leaf blocks are kept.
    async fn keep_refine(&self) -> Result<bool> {
        let mut from = 0;
        while from < self.groups.len() {
            let missing = |entry: &GroupEntry| match entry.refine.get() {
                Some(_) => Vec::new(),
                None => entry.blocks.iter().filter_map(|b| b.refine).collect(),
            };
            let Some(chunk) = self.next_chunk(&mut from, missing).await? else { return Ok(false) };
            for Read { group, blocks: read, mut reservation } in chunk {
                let entry = &self.groups[group];
                let mut read = read.into_iter();
                let Some(leaf) = entry.leaf.get() else { return Ok(false) };
                let mut blocks = Vec::with_capacity(entry.blocks.len());
                for (block, leaf) in entry.blocks.iter().zip(&leaf.blocks) {
                    let Some(refine) = block.refine else {
                        blocks.push(None);
                        continue;
                    };
                    let bytes = read.next().expect("one answer a block");
                    let decoded =
                        DecodedRefineBlock::decode(bytes).map_err(|e| undecodable(e, refine.pack))?;
                    entry.check_refine(leaf.slots(), decoded.slots())?;
                    blocks.push(Some(decoded));
                }
                if !reservation.resize(blocks.iter().flatten().map(|b| b.memory() as u64).sum()) {
                    return Ok(false);
                }
                let _ = entry.refine.set(Arc::new(Kept { blocks, _reservation: reservation }));
            }
        }
        Ok(true)
    }

    /// `false`: there is no room for more.
    async fn keep_ids(&self) -> Result<bool> {
        for segment in self.segments.iter().rev() {
            let side = segment.side();
            let missing: Vec<usize> =
                (0..side.batches.len()).filter(|batch| segment.ids(*batch).is_none()).collect();
            for batches in missing.chunks(CHUNK_BATCHES) {
                let mut ranges = Vec::with_capacity(batches.len());
                let mut reservations = Vec::with_capacity(batches.len());
                for &batch in batches {
                    let range = side.ids_range(batch);
                    let Some(reservation) = self.env.resident.reserve(range.end - range.start) else { break };
                    ranges.push(range);
                    reservations.push(reservation);
                }
                let read = segment.reader().ranges(&ranges).await?;
                let full = read.len() < batches.len();
                for ((&batch, bytes), reservation) in batches.iter().zip(read).zip(reservations) {
                    segment.keep_ids(
                        batch,
                        KeptIds { ids: Bytes::copy_from_slice(&bytes), _reservation: reservation },
                    );
                }
                if full {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// `false`: there is no room for more.
    async fn keep_vectors(&self) -> Result<bool> {
        for segment in self.segments.iter().rev() {
            for batch in 0..segment.side().batches.len() {
                if segment.kept(batch).is_some() {
                    continue;
                }
                let range = segment.side().vectors_range(batch);
                let bytes = range.end - range.start;
                let Some(reservation) = Some(bytes)
                    .filter(|bytes| *bytes <= self.room_for_vectors())
                    .and_then(|bytes| self.env.resident.reserve(bytes))
                else {
                    return Ok(false);
                };
                let read = segment.reader().range(range).await?;
                let vectors = Arena::aligned(Some(&self.env.arena), &read);
                segment.keep_vectors(batch, KeptVectors { vectors, _reservation: reservation });
            }
        }
        Ok(true)
    }
}
