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
    /// By kind and age.
    open: BTreeMap<(PackKind, u8), Open>,
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

    fn stream(&self, kind: PackKind, age: u8) -> (PackKind, u8) {
        if self.mixed { (PackKind::Mixed, 0) } else { (kind, age) }
    }

    fn open(&mut self, stream: (PackKind, u8)) -> Result<&mut Open> {
        if !self.open.contains_key(&stream) {
            let sink = self.ctx.io.store().writer(ObjectKind::Pack).map_err(stored)?;
            let writer = PackWriter::new(sink).map_err(writing)?;
            self.open.insert(stream, Open { number: self.names.len(), writer });
            self.names.push(None);
        }
        Ok(self.open.get_mut(&stream).expect("inserted above"))
    }

    /// Adds a block. A pack that is full is sealed first.
    pub fn append(&mut self, kind: PackKind, block: &[u8]) -> Result<Ticket> {
        self.append_aged(kind, 0, block)
    }

    /// Adds a block to the packs of its kind and age. Blocks that will be replaced soon (newer deltas have a higher age)
    /// lie apart from those that stay, so that packs die as a whole.
    pub fn append_aged(&mut self, kind: PackKind, age: u8, block: &[u8]) -> Result<Ticket> {
        let stream = self.stream(kind, age);
        let full = |open: &Open| open.writer.bytes() + block.len() as u64 > PACK_BYTES;
        if !self.mixed && self.open.get(&stream).is_some_and(full) {
            self.finish(stream)?;
        }
        let open = self.open(stream)?;
        let placed = open.writer.append(block).map_err(writing)?;
        Ok(Ticket { pack: open.number, placed })
    }

    /// Hands the open pack of a kind to a writer of many blocks. What it wrote is in the pack of the number returned.
    pub fn write_with<T>(
        &mut self,
        kind: PackKind,
        f: impl FnOnce(&mut PackWriter<ObjectWriter>) -> Result<T>,
    ) -> Result<(T, usize)> {
        let open = self.open(self.stream(kind, 0))?;
        Ok((f(&mut open.writer)?, open.number))
    }

    /// Ends the open pack of a kind, if there is one, and stores it. In a small collection all kinds share one pack,
    /// which is ended by [`Packs::seal_all`] alone.
    pub fn seal(&mut self, kind: PackKind) -> Result<()> {
        if self.mixed {
            return Ok(());
        }
        self.finish((kind, 0))
    }

    /// Ends and stores all packs.
    pub fn seal_all(&mut self) -> Result<()> {
        let streams: Vec<(PackKind, u8)> = self.open.keys().copied().collect();
        streams.into_iter().try_for_each(|stream| self.finish(stream))
    }

    fn finish(&mut self, stream: (PackKind, u8)) -> Result<()> {
        let Some(Open { number, writer }) = self.open.remove(&stream) else { return Ok(()) };
        let (sink, summary) = writer.finish().map_err(writing)?;
        let hash = Hash(sink.hash());
        if hash != summary.hash {
            return Err(Error::internal("a pack's writer and its file disagree on its hash"));
        }
        let object = ObjectRef { depth: self.ctx.depth, hash };
        self.ctx.block(sink.finish(&self.ctx.io.pack_key(&object))).map_err(stored)?;
        self.names[number] = Some(object);
        self.sealed.push(PackEntry { object, kind: stream.0, bytes: summary.bytes, live_bytes: 0 });
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
