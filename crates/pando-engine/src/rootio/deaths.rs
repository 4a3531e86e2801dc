//! Dead rows and write windows of a root.

use pando_format::{DeathBlock, Deaths, RowSet, Stored, WindowBlock, WindowEntry};

use super::RootIo;
use super::error::{damaged, undecodable};
use crate::error::Result;

impl RootIo {
    /// The dead rows of a root that are still in leaves or segments.
    pub async fn deaths(&self, deaths: &Deaths) -> Result<RowSet> {
        let refs: Vec<_> =
            deaths.chunks.iter().map(|c| c.block).chain(deaths.deltas.iter().map(|d| d.block)).collect();
        let blocks = self.blocks(&refs).await?;
        let mut all = RowSet::new();
        for (i, bytes) in blocks.iter().enumerate() {
            let rows = DeathBlock::decode(bytes).map_err(|e| undecodable(e, refs[i].pack))?.rows;
            let fits = match deaths.chunks.get(i) {
                Some(chunk) => {
                    rows.len() == u64::from(chunk.rows)
                        && rows.min().is_none_or(|r| r >> 16 == chunk.chunk)
                        && rows.max().is_none_or(|r| r >> 16 == chunk.chunk)
                }
                None => rows.len() == deaths.deltas[i - deaths.chunks.len()].rows,
            };
            if !fits {
                return Err(damaged("deaths: a block does not hold the stated rows"));
            }
            all |= rows;
        }
        Ok(all)
    }

    /// One block of recent nonces and idempotency keys.
    pub async fn window(&self, entry: &WindowEntry) -> Result<WindowBlock> {
        let bytes = self.block(&entry.block).await?;
        let block = WindowBlock::decode(&bytes).map_err(|e| undecodable(e, entry.block.pack))?;
        let inside = |s: u64| (entry.first_sequence..=entry.last_sequence).contains(&s);
        if block.nonces.len() != entry.nonces as usize
            || block.keys.len() != entry.keys as usize
            || !block.nonces.iter().all(|n| inside(n.sequence))
            || !block.keys.iter().all(|k| inside(k.sequence))
        {
            return Err(damaged("write window: a block does not hold the stated entries"));
        }
        Ok(block)
    }
}
