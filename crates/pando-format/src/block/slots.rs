//! Slots of leaf and refine blocks: their table, and where each lies.

use std::ops::Range;

use crate::block::codes::check_padded;
use crate::block::{ALIGN, BlockReader};
use crate::error::{FormatError, ObjectKind};

/// Bytes of a slot in the table.
pub(super) const SLOT_BYTES: usize = 24;

/// What a slot means for its leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotKind {
    /// All of the leaf at that time: supersedes its slots in older blocks. Carries the centroid.
    Whole,
    /// Rows added to the leaf; codes are relative to the centroid of its whole slot.
    Append,
}

impl SlotKind {
    /// Where the first section of a slot begins in a block of this kind, and the sections after it.
    pub(super) fn alignment(self, block: ObjectKind) -> (usize, usize) {
        match (self, block) {
            (Self::Whole, _) => (ALIGN, ALIGN),
            (Self::Append, ObjectKind::RefineBlock) => (32, 1),
            (Self::Append, _) => (8, 1),
        }
    }
}

/// Where a slot's columns lie in its block.
#[derive(Clone, Debug)]
pub struct SlotIndex {
    /// The leaf.
    pub leaf: u64,
    /// Whole or append.
    pub kind: SlotKind,
    /// Primaries.
    pub n_primary: usize,
    /// Secondaries.
    pub n_secondary: usize,
    pub(super) columns: [Range<usize>; 6],
    /// Packed codes among those that were filled up (append slots of leaf blocks).
    pub(super) filled: Range<usize>,
}

/// What a slot holds and where it begins in its block: enough to read the slot without the rest of the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotPlace {
    /// The leaf.
    pub leaf: u64,
    /// First byte in the block.
    pub offset: u32,
    /// Bytes from there to the end of its last section.
    pub len: u32,
    /// Primaries.
    pub n_primary: u32,
    /// Secondaries.
    pub n_secondary: u32,
    /// Whole or append.
    pub kind: SlotKind,
}

impl SlotPlace {
    /// Rows of the slot.
    pub fn rows(&self) -> usize {
        self.n_primary as usize + self.n_secondary as usize
    }

    /// Bytes of the block that the slot takes.
    pub fn range(&self) -> Range<u64> {
        u64::from(self.offset)..u64::from(self.offset) + u64::from(self.len)
    }
}

impl SlotIndex {
    /// Where the slot lies.
    pub fn place(&self) -> SlotPlace {
        // A block is shorter than 4 GiB; sections lie in the order of the columns, and those that are not there are 0..0.
        let start = self.columns.iter().filter(|c| c.end > 0).map(|c| c.start).min().unwrap_or(0);
        let end = self.columns.iter().map(|c| c.end).max().unwrap_or(0);
        SlotPlace {
            leaf: self.leaf,
            offset: start as u32,
            len: (end - start) as u32,
            n_primary: self.n_primary as u32,
            n_secondary: self.n_secondary as u32,
            kind: self.kind,
        }
    }
}

/// What decides the lengths of a slot's sections.
pub(super) struct Shape {
    pub(super) kind: SlotKind,
    pub(super) n: usize,
    pub(super) dim: usize,
    pub(super) padded: usize,
}

/// Reads header and slot table; `columns` places the sections of one slot.
pub(super) fn decode_slots(
    kind: ObjectKind,
    bytes: &[u8],
    columns: impl Fn(&mut BlockReader<'_>, &Shape) -> Result<[Range<usize>; 6], FormatError>,
) -> Result<(usize, usize, Vec<SlotIndex>), FormatError> {
    let mut r = BlockReader::new(kind, 3, bytes)?;
    let (n, dim, padded) = (r.count(0) as usize, r.count(1) as usize, r.count(2) as usize);
    check_padded(padded).map_err(|what| r.damaged(what))?;
    if dim == 0 || dim > padded {
        return Err(r.damaged("its dimension is not valid"));
    }
    let table = r.section(n, SLOT_BYTES)?;
    let mut slots = Vec::with_capacity(n);
    for row in bytes[table].chunks_exact(SLOT_BYTES) {
        let number =
            |at: usize| u32::from_le_bytes(*row[at..at + 4].first_chunk().expect("4 bytes")) as usize;
        let (n_primary, n_secondary) = (number(8), number(12));
        let slot_kind = match row[16..] {
            [0, 0, 0, 0, 0, 0, 0, 0] => SlotKind::Whole,
            [1, 0, 0, 0, 0, 0, 0, 0] => SlotKind::Append,
            _ => return Err(r.damaged("a slot is of an unknown kind")),
        };
        let leaf = u64::from_le_bytes(*row.first_chunk().expect("8 bytes"));
        let shape = Shape { kind: slot_kind, n: n_primary + n_secondary, dim, padded };
        slots.push(index_slot(&mut r, leaf, n_primary, shape, &columns)?);
    }
    r.end()?;
    Ok((dim, padded, slots))
}

/// Places the sections of the slot that comes next.
fn index_slot(
    r: &mut BlockReader<'_>,
    leaf: u64,
    n_primary: usize,
    shape: Shape,
    columns: impl Fn(&mut BlockReader<'_>, &Shape) -> Result<[Range<usize>; 6], FormatError>,
) -> Result<SlotIndex, FormatError> {
    let (first, rest) = shape.kind.alignment(r.kind);
    r.run(first, rest)?;
    Ok(SlotIndex {
        leaf,
        kind: shape.kind,
        n_primary,
        n_secondary: shape.n - n_primary,
        columns: columns(r, &shape)?,
        filled: 0..0,
    })
}

/// Places the sections of a slot whose bytes are alone.
pub(super) fn decode_slot(
    kind: ObjectKind,
    place: &SlotPlace,
    (dim, padded): (usize, usize),
    bytes: &[u8],
    columns: impl Fn(&mut BlockReader<'_>, &Shape) -> Result<[Range<usize>; 6], FormatError>,
) -> Result<SlotIndex, FormatError> {
    let mut r = BlockReader::of_part(kind, bytes);
    let shape = Shape { kind: place.kind, n: place.rows(), dim, padded };
    let slot = index_slot(&mut r, place.leaf, place.n_primary as usize, shape, columns)?;
    r.end()?;
    Ok(slot)
}
