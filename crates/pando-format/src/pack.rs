//! Packs: blocks one after another, each at a multiple of 64 bytes, after a 64-byte header
//! (`"PNDK"`, u16 zero, u16 version, zeros). A pack is named by the hash of its bytes.
//!
//! A block may refer to blocks of its own pack, whose hash is not known while it is written: such a
//! reference names [`ObjectRef::SELF`] and is resolved by whoever read the block.

use std::io::Write;

use crate::envelope::FORMAT_VERSION;
use crate::error::{FormatError, ObjectKind};
use crate::ids::{BlockRef, Hash, ObjectRef};

const MAGIC: &[u8; 4] = b"PNDK";
/// Blocks begin at multiples of this.
pub const BLOCK_ALIGNMENT: u64 = 64;

impl ObjectRef {
    /// "The pack that holds the block with this reference".
    pub const SELF: Self = Self { depth: 0, hash: Hash([0; 32]) };
}

impl BlockRef {
    /// The reference as read from a block of the pack `holder`.
    #[must_use]
    pub fn resolve(self, holder: ObjectRef) -> Self {
        if self.pack == ObjectRef::SELF { Self { pack: holder, ..self } } else { self }
    }
}

/// Where a block was put in a pack that is still being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Byte offset.
    pub offset: u64,
    /// Length.
    pub len: u32,
    /// BLAKE3 of the block.
    pub hash: Hash,
}

impl Placed {
    /// The reference, once the pack's name is known; [`ObjectRef::SELF`] inside the pack.
    pub fn at(self, pack: ObjectRef) -> BlockRef {
        BlockRef { pack, offset: self.offset, len: self.len, hash: self.hash }
    }
}

/// What came out of a [`PackWriter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackSummary {
    /// BLAKE3 of the pack: its name.
    pub hash: Hash,
    /// Its length.
    pub bytes: u64,
    /// Bytes of its blocks, padding left out.
    pub block_bytes: u64,
    /// Blocks in it.
    pub blocks: u64,
}

/// Writes a pack to a sink, block by block; holds no block in memory.
#[derive(Debug)]
pub struct PackWriter<W> {
    sink: W,
    hasher: blake3::Hasher,
    at: u64,
    summary: PackSummary,
}

impl<W: Write> PackWriter<W> {
    /// Begins a pack.
    pub fn new(sink: W) -> Result<Self, FormatError> {
        let summary = PackSummary { hash: Hash::default(), bytes: 0, block_bytes: 0, blocks: 0 };
        let mut writer = Self { sink, hasher: blake3::Hasher::new(), at: 0, summary };
        let mut header = [0; BLOCK_ALIGNMENT as usize];
        header[..4].copy_from_slice(MAGIC);
        header[6..8].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        writer.write(&header)?;
        Ok(writer)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), FormatError> {
        let sink = |e: std::io::Error| FormatError::Sink { kind: ObjectKind::Pack, what: e.to_string() };
        self.sink.write_all(bytes).map_err(sink)?;
        self.hasher.update(bytes);
        self.at += bytes.len() as u64;
        Ok(())
    }

    /// Adds a block and says where it is.
    pub fn append(&mut self, block: &[u8]) -> Result<Placed, FormatError> {
        let padding = self.at.next_multiple_of(BLOCK_ALIGNMENT) - self.at;
        self.write(&[0; BLOCK_ALIGNMENT as usize][..padding as usize])?;
        let len = u32::try_from(block.len())
            .map_err(|_| FormatError::invalid(ObjectKind::Pack, "a block is longer than 4 GiB"))?;
        let placed = Placed { offset: self.at, len, hash: Hash::of(block) };
        self.write(block)?;
        self.summary.block_bytes += u64::from(len);
        self.summary.blocks += 1;
        Ok(placed)
    }

    /// Blocks so far.
    pub fn blocks(&self) -> u64 {
        self.summary.blocks
    }

    /// Bytes so far.
    pub fn bytes(&self) -> u64 {
        self.at
    }

    /// Ends the pack: the sink, flushed, and the pack's name.
    pub fn finish(mut self) -> Result<(W, PackSummary), FormatError> {
        self.sink.flush().map_err(|e| FormatError::Sink { kind: ObjectKind::Pack, what: e.to_string() })?;
        self.summary.hash = Hash(*self.hasher.finalize().as_bytes());
        self.summary.bytes = self.at;
        Ok((self.sink, self.summary))
    }
}

/// Checks the header of a pack.
pub fn check_pack_header(bytes: &[u8]) -> Result<(), FormatError> {
    let kind = ObjectKind::Pack;
    let header: &[u8; 8] =
        bytes.first_chunk().ok_or_else(|| FormatError::damaged(kind, "it is shorter than its header"))?;
    if &header[..4] != MAGIC {
        return Err(FormatError::damaged(kind, "it does not begin with the magic number"));
    }
    let found = u16::from_le_bytes([header[6], header[7]]);
    if found == FORMAT_VERSION {
        Ok(())
    } else {
        Err(FormatError::Version { kind, found, supported: FORMAT_VERSION })
    }
}
