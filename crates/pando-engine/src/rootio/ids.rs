//! Id runs: sorted lookups of many ids, and streaming through a run.

use std::collections::VecDeque;
use std::sync::Arc;

use pando_format::{BlockRef, IdBlock, IdIndex, IdKind, IdRun, IdRunPart, IdView, RecordId, Stored, id_hash};

use super::RootIo;
use super::error::{damaged, undecodable};
use crate::error::Result;
use crate::workers::Waiter;

impl RootIo {
    /// The index of a part of a run, its references made whole.
    pub async fn id_index(&self, part: &IdRunPart) -> Result<IdIndex> {
        let bytes = self.block(&part.index).await?;
        let mut index = IdIndex::decode(&bytes).map_err(|e| undecodable(e, part.index.pack))?;
        index.resolve(part.index.pack);
        let ids: u64 = index.blocks.iter().map(|b| u64::from(b.ids)).sum();
        let bytes: u64 = index.blocks.iter().map(|b| u64::from(b.block.len)).sum();
        if ids != part.ids
            || bytes != part.bytes
            || index.blocks.first().is_none_or(|b| b.first != part.first)
        {
            return Err(damaged("ids: an index is not the one its run names"));
        }
        Ok(index)
    }

    /// Id blocks of one part (at most 64 of about 64 KiB), in the order asked for.
    pub async fn id_blocks(&self, blocks: &[BlockRef]) -> Result<Vec<IdBlock>> {
        let bytes = self.blocks(blocks).await?;
        let decode = |(bytes, block): (Arc<_>, &BlockRef)| {
            IdBlock::decode(bytes).map_err(|e| undecodable(e, block.pack))
        };
        bytes.into_iter().zip(blocks).map(decode).collect()
    }

    /// Newest row that the runs hold for each of `ids` (one kind, ascending, unique), dead or alive. Each block is read
    /// at most once a run; memory is one part's blocks.
    ///
    /// `runs` are a manifest's, in its order. The newest version of an id decides: when its row is dead, the id is gone.
    pub async fn lookup_sorted(
        &self,
        runs: &[IdRun],
        kind: IdKind,
        ids: &[IdView<'_>],
    ) -> Result<Vec<Option<u64>>> {
        let mut found = vec![None; ids.len()];
        for run in newest_first(runs, kind) {
            let mut at = 0;
            for part in &run.parts {
                at += ids[at..].partition_point(|id| *id < IdView::from(&part.first));
                let end = at + ids[at..].partition_point(|id| *id <= IdView::from(&part.last));
                if found[at..end].iter().any(Option::is_none) {
                    self.lookup_part(part, &ids[at..end], &mut found[at..end]).await?;
                }
                at = end;
            }
        }
        Ok(found)
    }

    async fn lookup_part(
        &self,
        part: &IdRunPart,
        ids: &[IdView<'_>],
        found: &mut [Option<u64>],
    ) -> Result<()> {
        let index = self.id_index(part).await?;
        // (index of the id, block): ids ascend, so blocks do too.
        let mut wanted: Vec<(usize, usize)> = Vec::new();
        let mut blocks: Vec<BlockRef> = Vec::new();
        for (i, view) in ids.iter().enumerate().filter(|(i, _)| found[*i].is_none()) {
            let id = view.to_id();
            let Some(entry) = index.find_hashed(&id, id_hash(&id)) else { continue };
            if blocks.last() != Some(&entry.block) {
                blocks.push(entry.block);
            }
            wanted.push((i, blocks.len() - 1));
        }
        let blocks = self.id_blocks(&blocks).await?;
        for (i, block) in wanted {
            found[i] = blocks[block].find(ids[i]);
        }
        Ok(())
    }
}

/// Runs of one kind, newest first: lowest level, within a level the one listed last.
pub fn newest_first(runs: &[IdRun], kind: IdKind) -> Vec<&IdRun> {
    let mut list: Vec<&IdRun> = runs.iter().filter(|run| run.kind == kind).rev().collect();
    list.sort_by_key(|run| run.level);
    list
}

/// Goes through a run in order of ids, for worker threads: blocks on storage where it has to. Holds one part's blocks.
pub struct IdRunCursor {
    io: RootIo,
    waiter: Waiter,
    parts: VecDeque<IdRunPart>,
    blocks: VecDeque<IdBlock>,
    block: Option<IdBlock>,
    at: usize,
}

impl IdRunCursor {
    /// A cursor at the start of `run`. Must be used outside tokio's workers.
    pub fn new(io: &RootIo, waiter: Waiter, run: &IdRun) -> Self {
        let parts = run.parts.iter().cloned().collect();
        Self { io: io.clone(), waiter, parts, blocks: VecDeque::new(), block: None, at: 0 }
    }

    fn load(&mut self) -> Result<bool> {
        loop {
            if let Some(block) = self.blocks.pop_front() {
                (self.block, self.at) = (Some(block), 0);
                return Ok(true);
            }
            let Some(part) = self.parts.pop_front() else { return Ok(false) };
            let io = self.io.clone();
            self.blocks = self.waiter.block_on(async move {
                let refs: Vec<BlockRef> = io.id_index(&part).await?.blocks.iter().map(|b| b.block).collect();
                io.id_blocks(&refs).await.map(VecDeque::from)
            })?;
        }
    }

    fn step(&mut self) -> Result<Option<(RecordId, u64)>> {
        loop {
            if let Some(block) = &self.block
                && self.at < block.len()
            {
                let pair = (block.id(self.at).to_id(), block.rows()[self.at]);
                self.at += 1;
                return Ok(Some(pair));
            }
            if !self.load()? {
                return Ok(None);
            }
        }
    }
}

impl Iterator for IdRunCursor {
    type Item = Result<(RecordId, u64)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step().transpose()
    }
}
