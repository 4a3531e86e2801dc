//! Writes an id run into a pack: id blocks, and after each 64 of them their index.

use std::io::Write;

use crate::envelope::Stored;
use crate::error::{FormatError, ObjectKind};
use crate::id_run::{ID_BLOCK_BYTES, ID_BLOCKS_PER_PART, IdFilter, IdIndex, IdIndexEntry, encode_id_block};
use crate::ids::{ObjectRef, RecordId, id_hash};
use crate::object::manifest::{IdKind, IdRun, IdRunPart};
use crate::pack::{PackWriter, Placed};

/// Builds one run from pairs in ascending order of id. Holds one id block and one index in memory.
#[derive(Debug)]
pub struct IdRunBuilder {
    kind: IdKind,
    level: u8,
    pairs: Vec<(RecordId, u64)>,
    bytes: usize,
    last: Option<RecordId>,
    blocks: Vec<IdIndexEntry>,
    parts: Vec<(IdRunPart, Placed)>,
}

/// A run whose pack has no name yet.
#[derive(Debug)]
pub struct PendingIdRun {
    kind: IdKind,
    level: u8,
    parts: Vec<(IdRunPart, Placed)>,
}

impl PendingIdRun {
    /// The run, once the pack it was written to has a name.
    pub fn at(self, pack: ObjectRef) -> IdRun {
        let parts: Vec<IdRunPart> = self
            .parts
            .into_iter()
            .map(|(part, placed)| IdRunPart { index: placed.at(pack), ..part })
            .collect();
        IdRun { kind: self.kind, level: self.level, ids: parts.iter().map(|p| p.ids).sum(), parts }
    }

    /// True when no id was given; such a run is not listed in a manifest.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }
}

impl IdRunBuilder {
    /// A run of ids of this kind at this level.
    pub fn new(kind: IdKind, level: u8) -> Self {
        Self { kind, level, pairs: Vec::new(), bytes: 0, last: None, blocks: Vec::new(), parts: Vec::new() }
    }

    /// Adds a pair; ids must ascend.
    pub fn push<W: Write>(
        &mut self,
        id: RecordId,
        row: u64,
        pack: &mut PackWriter<W>,
    ) -> Result<(), FormatError> {
        if id.kind() != self.kind || self.last.as_ref().is_some_and(|last| *last >= id) {
            let what = "ids of a run are not in order or of another kind";
            return Err(FormatError::invalid(ObjectKind::IdBlock, what));
        }
        let size = match &id {
            RecordId::U64(_) => 16,
            RecordId::Str(s) => 12 + s.len(),
        };
        if self.bytes + size > ID_BLOCK_BYTES {
            self.close_block(pack)?;
        }
        self.bytes += size;
        self.last = Some(id.clone());
        self.pairs.push((id, row));
        Ok(())
    }

    fn close_block<W: Write>(&mut self, pack: &mut PackWriter<W>) -> Result<(), FormatError> {
        let Some((first, _)) = self.pairs.first() else { return Ok(()) };
        let placed = pack.append(&encode_id_block(self.kind, &self.pairs)?)?;
        let hashes: Vec<u64> = self.pairs.iter().map(|(id, _)| id_hash(id)).collect();
        self.blocks.push(IdIndexEntry {
            first: first.clone(),
            ids: self.pairs.len() as u32,
            block: placed.at(ObjectRef::SELF),
            filter: IdFilter::new(&hashes),
        });
        if self.blocks.len() == ID_BLOCKS_PER_PART {
            self.close_part(pack)?;
        }
        self.pairs.clear();
        self.bytes = 0;
        Ok(())
    }

    fn close_part<W: Write>(&mut self, pack: &mut PackWriter<W>) -> Result<(), FormatError> {
        let blocks = std::mem::take(&mut self.blocks);
        let (Some(first), Some(last)) = (blocks.first().map(|b| b.first.clone()), self.last.clone()) else {
            return Ok(());
        };
        let ids = blocks.iter().map(|b| u64::from(b.ids)).sum();
        let bytes = blocks.iter().map(|b| u64::from(b.block.len)).sum();
        let placed = pack.append(&IdIndex { blocks }.encode()?)?;
        let index = placed.at(ObjectRef::SELF);
        self.parts.push((IdRunPart { first, last, ids, index, bytes }, placed));
        Ok(())
    }

    /// Writes what is left.
    pub fn finish<W: Write>(mut self, pack: &mut PackWriter<W>) -> Result<PendingIdRun, FormatError> {
        self.close_block(pack)?;
        self.close_part(pack)?;
        Ok(PendingIdRun { kind: self.kind, level: self.level, parts: self.parts })
    }
}
