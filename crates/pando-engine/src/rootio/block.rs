//! Keys of a collection's objects, and verified blocks.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use pando_format::{AlignedBytes, BlockRef, CollectionRecord, Hash, Manifest, ObjectRef, RootId, Stored};
use pando_store::{Key, Store};

use super::error::{damaged_at, stored, undecodable};
use crate::arena::Arena;
use crate::error::Result;

/// Blocks of one pack that lie so close together are read with one request …
const GAP: u64 = 64 << 10;
/// … of at most so many bytes.
const RUN: u64 = 8 << 20;
/// Requests in flight for one call.
const IN_FLIGHT: usize = 8;

/// Reads one collection's objects. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RootIo {
    store: Store,
    record: Arc<CollectionRecord>,
}

impl RootIo {
    /// A reader for the collection of `record`; objects of ancestors are found by their depth.
    pub fn new(store: Store, record: Arc<CollectionRecord>) -> Self {
        Self { store, record }
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The collection.
    pub fn record(&self) -> &Arc<CollectionRecord> {
        &self.record
    }

    /// Key of a pack.
    pub fn pack_key(&self, pack: &ObjectRef) -> Key {
        Key::Pack { uuid: self.record.owner_of(pack.depth).0, depth: pack.depth, hash: pack.hash.0 }
    }

    /// Key of a segment.
    pub fn segment_key(&self, segment: &ObjectRef) -> Key {
        Key::Segment {
            uuid: self.record.owner_of(segment.depth).0,
            depth: segment.depth,
            hash: segment.hash.0,
        }
    }

    /// Key of a manifest.
    pub fn root_key(&self, depth: u64, root: &RootId) -> Key {
        Key::Root { uuid: self.record.owner_of(depth).0, depth, hash: root.0 }
    }

    /// The manifest of a root, checked against its id, and its bytes.
    pub async fn manifest(&self, depth: u64, root: &RootId) -> Result<(Manifest, Bytes)> {
        let key = self.root_key(depth, root);
        let bytes = self.store.get(&key).await.map_err(stored)?;
        if Hash::of(&bytes).0 != root.0 {
            return Err(damaged_at("root: it does not have its hash", &key));
        }
        let manifest = Manifest::decode(&bytes).map_err(|e| undecodable(e, &key))?;
        if manifest.depth != depth {
            return Err(damaged_at(format!("root: it states depth {}", manifest.depth), &key));
        }
        Ok((manifest, bytes))
    }

    /// One block, checked against its hash.
    pub async fn block(&self, block: &BlockRef) -> Result<Arc<AlignedBytes>> {
        self.block_in(block, None).await
    }

    async fn block_in(&self, block: &BlockRef, arena: Option<&Arena>) -> Result<Arc<AlignedBytes>> {
        let key = self.pack_key(&block.pack);
        let bytes =
            self.store.get_block(&key, block.offset, block.len, &block.hash.0).await.map_err(stored)?;
        Ok(Arc::new(Arena::aligned(arena, &bytes)))
    }

    /// Many blocks, each checked, in the order given. Neighbours are read together. All are in memory at the end: the
    /// caller bounds how many it asks for.
    pub async fn blocks(&self, blocks: &[BlockRef]) -> Result<Vec<Arc<AlignedBytes>>> {
        self.blocks_in(blocks, None).await
    }

    /// [`RootIo::blocks`] that are to be kept: in `arena`, if it is given.
    pub async fn blocks_in(
        &self,
        blocks: &[BlockRef],
        arena: Option<&Arena>,
    ) -> Result<Vec<Arc<AlignedBytes>>> {
        let mut order: Vec<usize> = (0..blocks.len()).collect();
        order.sort_by_key(|&i| (blocks[i].pack, blocks[i].offset));
        let runs = runs(blocks, &order);
        let read =
            stream::iter(runs.into_iter().map(|run| self.read_run(blocks, order[run].to_vec(), arena)));
        let parts: Vec<Vec<(usize, Arc<AlignedBytes>)>> =
            read.buffer_unordered(IN_FLIGHT).try_collect().await?;
        let mut out: Vec<Option<Arc<AlignedBytes>>> = vec![None; blocks.len()];
        for (i, bytes) in parts.into_iter().flatten() {
            out[i] = Some(bytes);
        }
        Ok(out.into_iter().map(|b| b.expect("every block is in one run")).collect())
    }

    /// Reads blocks of one pack that lie close together.
    async fn read_run(
        &self,
        blocks: &[BlockRef],
        members: Vec<usize>,
        arena: Option<&Arena>,
    ) -> Result<Vec<(usize, Arc<AlignedBytes>)>> {
        let (first, last) = (&blocks[members[0]], &blocks[members[members.len() - 1]]);
        if members.len() == 1 {
            return Ok(vec![(members[0], self.block_in(first, arena).await?)]);
        }
        let key = self.pack_key(&first.pack);
        let bytes = self.store.get_range(&key, first.offset..last.range().end).await.map_err(stored)?;
        let mut out = Vec::with_capacity(members.len());
        for i in members {
            let block = &blocks[i];
            let start = (block.offset - first.offset) as usize;
            let part = &bytes[start..start + block.len as usize];
            // A block that was damaged on the way is read again on its own before it counts as damaged.
            let good = Hash::of(part) == block.hash;
            let part = match good {
                true => Arc::new(Arena::aligned(arena, part)),
                false => self.block_in(block, arena).await?,
            };
            out.push((i, part));
        }
        Ok(out)
    }
}

/// Ranges of `order` whose blocks are read with one request.
fn runs(blocks: &[BlockRef], order: &[usize]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (at, &i) in order.iter().enumerate() {
        let block = &blocks[i];
        if let Some(run) = runs.last_mut() {
            let (first, last) = (&blocks[order[run.start]], &blocks[order[run.end - 1]]);
            let near = block.pack == first.pack
                && block.offset >= last.range().end
                && block.offset - last.range().end <= GAP
                && block.range().end - first.offset <= RUN;
            if near {
                run.end = at + 1;
                continue;
            }
        }
        runs.push(at..at + 1);
    }
    runs
}
