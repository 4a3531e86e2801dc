//! Packs being written. A block's reference is known once its pack is sealed.

use std::collections::BTreeMap;

use pando_format::{BlockRef, Hash, ObjectRef, PackEntry, PackKind, PackWriter, Placed};
use pando_store::{ObjectKind, ObjectWriter};

use super::constants::PACK_BYTES;
use super::context::Context;
use crate::error::{Error, Result};
use crate::rootio::stored;

/// A block in a pack that may not have its name yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    pack: usize,
    placed: Placed,
}

struct Open {
    number: usize,
    writer: PackWriter<ObjectWriter>,
}

/// The packs of one checkpoint.
pub struct Packs<'a> {
    ctx: &'a Context,
    /// Everything in one pack, as in small collections.
    mixed: bool,
    open: BTreeMap<PackKind, Open>,
    names: Vec<Option<ObjectRef>>,
    sealed: Vec<PackEntry>,
}

fn writing(e: pando_format::FormatError) -> Error {
    Error::internal(format!("writing a pack: {e}"))
}

impl<'a> Packs<'a> {
    /// No packs yet. `mixed`: one pack for all kinds.
    pub fn new(ctx: &'a Context, mixed: bool) -> Self {
        Self { ctx, mixed, open: BTreeMap::new(), names: Vec::new(), sealed: Vec::new() }
    }

    fn kind(&self, kind: PackKind) -> PackKind {
        if self.mixed { PackKind::Mixed } else { kind }
    }

    fn open(&mut self, kind: PackKind) -> Result<&mut Open> {
        let kind = self.kind(kind);
        if !self.open.contains_key(&kind) {
            let sink = self.ctx.io.store().writer(ObjectKind::Pack).map_err(stored)?;
            let writer = PackWriter::new(sink).map_err(writing)?;
            self.open.insert(kind, Open { number: self.names.len(), writer });
            self.names.push(None);
        }
        Ok(self.open.get_mut(&kind).expect("inserted above"))
    }

    /// Adds a block. A pack that is full is sealed first.
    pub fn append(&mut self, kind: PackKind, block: &[u8]) -> Result<Ticket> {
        let of = self.kind(kind);
        if !self.mixed
            && self.open.get(&of).is_some_and(|o| o.writer.bytes() + block.len() as u64 > PACK_BYTES)
        {
            self.seal(kind)?;
        }
        let open = self.open(kind)?;
        let placed = open.writer.append(block).map_err(writing)?;
        Ok(Ticket { pack: open.number, placed })
    }

    /// Hands the open pack of a kind to a writer of many blocks. What it wrote is in the pack of the number returned.
    pub fn write_with<T>(
        &mut self,
        kind: PackKind,
        f: impl FnOnce(&mut PackWriter<ObjectWriter>) -> Result<T>,
    ) -> Result<(T, usize)> {
        let open = self.open(kind)?;
        Ok((f(&mut open.writer)?, open.number))
    }

    /// Ends the open pack of a kind, if there is one, and stores it. In a small collection all kinds share one pack,
    /// which is ended by [`Packs::seal_all`] alone.
    pub fn seal(&mut self, kind: PackKind) -> Result<()> {
        if self.mixed {
            return Ok(());
        }
        self.finish(kind)
    }

    /// Ends and stores all packs.
    pub fn seal_all(&mut self) -> Result<()> {
        let kinds: Vec<PackKind> = self.open.keys().copied().collect();
        kinds.into_iter().try_for_each(|kind| self.finish(kind))
    }

    fn finish(&mut self, kind: PackKind) -> Result<()> {
        let Some(Open { number, writer }) = self.open.remove(&kind) else { return Ok(()) };
        let (sink, summary) = writer.finish().map_err(writing)?;
        let hash = Hash(sink.hash());
        if hash != summary.hash {
            return Err(Error::internal("a pack's writer and its file disagree on its hash"));
        }
        let object = ObjectRef { depth: self.ctx.depth, hash };
        self.ctx.block(sink.finish(&self.ctx.io.pack_key(&object))).map_err(stored)?;
        self.names[number] = Some(object);
        self.sealed.push(PackEntry { object, kind, bytes: summary.bytes, live_bytes: 0 });
        Ok(())
    }

    /// Name of a sealed pack.
    pub fn name(&self, number: usize) -> Result<ObjectRef> {
        self.names
            .get(number)
            .copied()
            .flatten()
            .ok_or_else(|| Error::internal("a pack is referred to before it is sealed"))
    }

    /// Reference of a block whose pack is sealed.
    pub fn resolve(&self, ticket: Ticket) -> Result<BlockRef> {
        Ok(ticket.placed.at(self.name(ticket.pack)?))
    }

    /// Packs stored so far; their live bytes are not counted yet. Two packs of one checkpoint may have the same bytes,
    /// and then are one.
    pub fn sealed(&self) -> &[PackEntry] {
        &self.sealed
    }
}
