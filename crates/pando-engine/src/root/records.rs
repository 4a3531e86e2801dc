//! Ids and attributes of root rows, and rows of ids.

use std::sync::Arc;

use bytes::Bytes;
use pando_format::{IdBlock, IdIndex, IdKind, IdRunPart, IdView, RecordId, SegmentPayload, id_hash};
use pando_store::BlockKey;

use super::OpenRoot;
use crate::block::Block;
use crate::error::Result;
use crate::rootio::{damaged, newest_first};

/// Key parts of what the cache holds of a segment, beside pages.
const IDS: u8 = 1;
const PAYLOAD: u8 = 2;

impl OpenRoot {
    fn place(&self, row: u64) -> Result<(usize, usize, usize)> {
        let (segment, position) =
            self.locate(row).ok_or_else(|| damaged("index: it names a row that no segment holds"))?;
        let (batch, index) = self.segments[segment].side().batch_of(position);
        Ok((segment, batch, index))
    }

    /// Starts the load of a row's id into the processor's cache, where it is kept in memory.
    pub fn prefetch_id(&self, row: u64) {
        let Some((segment, position)) = self.locate(row) else { return };
        let segment = &self.segments[segment];
        let (batch, index) = segment.side().batch_of(position);
        if let Some(ids) = segment.ids(batch)
            && let Some(id) = ids.get(segment.side().id_hint(batch, index)..)
        {
            pando_kernels::prefetch(&id[..id.len().min(1)]);
        }
    }

    /// The id of a row, if its batch is kept in memory.
    pub fn id_at_hand(&self, row: u64) -> Result<Option<RecordId>> {
        let (segment, batch, index) = self.place(row)?;
        let segment = &self.segments[segment];
        let Some(ids) = segment.ids(batch) else { return Ok(None) };
        Ok(Some(segment.side().decode_id(batch, index, ids)?))
    }

    /// The id of a row.
    pub async fn id_of(&self, row: u64) -> Result<RecordId> {
        if let Some(id) = self.id_at_hand(row)? {
            return Ok(id);
        }
        let (at, batch, index) = self.place(row)?;
        let segment = self.segments[at].clone();
        let range = segment.side().ids_range(batch);
        let key = segment.key(IDS, range.start);
        let loader = segment.clone();
        let load = move || async move {
            let bytes = Bytes::copy_from_slice(&loader.reader().range(range).await?);
            let weight = bytes.len();
            Ok((Block::Bytes(bytes), weight))
        };
        let cached = self.env.cache.get_or_load(key, load).await?;
        let Block::Bytes(bytes) = &*cached else { unreachable!("an ids key holds bytes") };
        Ok(segment.side().decode_id(batch, index, bytes)?)
    }

    /// Ids and attributes of the batch that holds a row, and the row's index in it.
    pub async fn payload(&self, row: u64) -> Result<(Arc<SegmentPayload>, usize)> {
        let (at, batch, index) = self.place(row)?;
        let segment = self.segments[at].clone();
        let key = segment.key(PAYLOAD, batch as u64);
        let load = move || async move {
            let [meta, body] = segment.side().payload_ranges(batch);
            let weight = (meta.end - meta.start + body.end - body.start) as usize * 2;
            Ok((Block::Payload(Arc::new(segment.reader().payload(batch).await?)), weight))
        };
        let cached = self.env.cache.get_or_load(key, load).await?;
        let Block::Payload(payload) = &*cached else { unreachable!("a payload key holds a payload") };
        Ok((payload.clone(), index))
    }

    /// The live row of each id, in the order asked for.
    pub async fn lookup_ids(&self, ids: &[RecordId]) -> Result<Vec<Option<u64>>> {
        let mut found = Vec::with_capacity(ids.len());
        if self.manifest.id_runs.is_empty() {
            found.resize(ids.len(), None);
            return Ok(found);
        }
        for id in ids {
            found.push(self.live_row(id).await?);
        }
        Ok(found)
    }

    /// Whether a row that the root once had is live in it. An id run may still name a row that died and has left all
    /// leaves and segments: that row is no longer among the deaths either.
    pub fn is_live(&self, row: u64) -> bool {
        !self.deaths.contains(row) && self.locate(row).is_some()
    }

    /// The live row of an id.
    pub async fn live_row(&self, id: &RecordId) -> Result<Option<u64>> {
        Ok(self.newest_row(id).await?.filter(|row| self.is_live(*row)))
    }

    /// The newest row that the root has of an id, dead or alive.
    async fn newest_row(&self, id: &RecordId) -> Result<Option<u64>> {
        let kind = match id {
            RecordId::U64(_) => IdKind::U64,
            RecordId::Str(_) => IdKind::Str,
        };
        let hash = id_hash(id);
        for run in newest_first(&self.manifest.id_runs, kind) {
            let at = run.parts.partition_point(|part| part.last < *id);
            let Some(part) = run.parts.get(at).filter(|part| part.first <= *id) else { continue };
            let index = self.id_index(part).await?;
            let Some(entry) = index.find_hashed(id, hash) else { continue };
            let block = self.id_block(entry.block).await?;
            if let Some(row) = block.find(IdView::from(id)) {
                return Ok(Some(row));
            }
        }
        Ok(None)
    }

    pub(crate) async fn id_index(&self, part: &IdRunPart) -> Result<Arc<IdIndex>> {
        let key = BlockKey { hash: part.index.hash.0, offset: part.index.offset };
        if let Some(Block::IdIndex(index)) = self.env.cache.get(&key).as_deref() {
            return Ok(index.clone());
        }
        let (io, part) = (self.io.clone(), part.clone());
        let load = move || async move {
            let index = io.id_index(&part).await?;
            Ok((Block::IdIndex(Arc::new(index)), part.index.len as usize * 2))
        };
        let cached = self.env.cache.get_or_load(key, load).await?;
        let Block::IdIndex(index) = &*cached else { unreachable!("an index key holds an index") };
        Ok(index.clone())
    }

    pub(crate) async fn id_block(&self, block: pando_format::BlockRef) -> Result<Arc<IdBlock>> {
        let key = BlockKey { hash: block.hash.0, offset: block.offset };
        if let Some(Block::Ids(block)) = self.env.cache.get(&key).as_deref() {
            return Ok(block.clone());
        }
        let io = self.io.clone();
        let load = move || async move {
            let decoded = io.id_blocks(&[block]).await?.pop().expect("one answer a block");
            Ok((Block::Ids(Arc::new(decoded)), block.len as usize))
        };
        let cached = self.env.cache.get_or_load(key, load).await?;
        let Block::Ids(decoded) = &*cached else { unreachable!("an id block's key holds ids") };
        Ok(decoded.clone())
    }
}
