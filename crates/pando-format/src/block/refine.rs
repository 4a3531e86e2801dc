//! Reading of refine blocks; see [`super::leaf`].

use std::ops::Range;
use std::sync::Arc;

use crate::aligned::AlignedBytes;
use crate::block::slots::{Shape, SlotIndex, SlotKind, SlotPlace, decode_slot, decode_slots};
use crate::block::{ALIGN, BlockReader, cast};
use crate::error::{FormatError, ObjectKind};

/// A slot of a refine block: views into the block's bytes.
#[derive(Clone, Copy, Debug)]
pub struct RefineSlot<'a> {
    /// The leaf.
    pub leaf: u64,
    /// Nibbles, row-major, padded/2 bytes a row.
    pub nibbles: &'a [u8],
    /// Constant term.
    pub f_add: &'a [f32],
    /// Scale.
    pub f_rescale: &'a [f32],
    /// Error bound factor.
    pub f_error: &'a [f32],
}

/// The sections of a slot of a refine block.
fn refine_columns(r: &mut BlockReader<'_>, s: &Shape) -> Result<[Range<usize>; 6], FormatError> {
    let (nibbles, f_add, f_rescale, f_error) =
        (r.section(s.n, s.padded / 2)?, r.section(s.n, 4)?, r.section(s.n, 4)?, r.section(s.n, 4)?);
    Ok([nibbles, f_add, f_rescale, f_error, 0..0, 0..0])
}

/// Where the refine code of one row of a slot lies in its block, for readers of single rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefineLayout {
    nibbles: u64,
    row: u64,
    columns: u64,
    stride: u64,
    rows: u64,
}

impl RefineLayout {
    /// Of a slot of a refine block of this padded dimension.
    pub fn new(place: &SlotPlace, padded: usize) -> Self {
        let (n, row) = (place.rows() as u64, padded as u64 / 2);
        let pad = |bytes: u64| match place.kind {
            SlotKind::Whole => bytes.next_multiple_of(ALIGN as u64),
            SlotKind::Append => bytes,
        };
        let nibbles = u64::from(place.offset);
        Self { nibbles, row, columns: nibbles + pad(n * row), stride: pad(4 * n), rows: n }
    }

    /// Bytes of the nibbles of a row.
    pub fn nibbles(&self, index: u32) -> Range<u64> {
        let start = self.nibbles + u64::from(index) * self.row;
        start..start + self.row
    }

    /// Bytes of all factors of the slot: f_add, f_rescale, f_error.
    pub fn factors(&self) -> Range<u64> {
        self.columns..self.columns + 2 * self.stride + 4 * self.rows
    }

    /// A row's f_add, f_rescale and f_error, from the bytes of [`RefineLayout::factors`]. Panics past the last row.
    pub fn factors_of(&self, index: u32, bytes: &[u8]) -> [f32; 3] {
        [0, 1, 2].map(|column| {
            let at = (column * self.stride + 4 * u64::from(index)) as usize;
            f32::from_le_bytes(*bytes[at..at + 4].first_chunk().expect("4 bytes"))
        })
    }
}

/// A decoded refine block.
#[derive(Clone, Debug)]
pub struct DecodedRefineBlock {
    bytes: Arc<AlignedBytes>,
    dim: usize,
    padded: usize,
    slots: Vec<SlotIndex>,
}

impl DecodedRefineBlock {
    /// Checks the block's layout once. The bytes' hash is checked by whoever read them.
    pub fn decode(bytes: Arc<AlignedBytes>) -> Result<Self, FormatError> {
        let (dim, padded, slots) = decode_slots(ObjectKind::RefineBlock, &bytes, refine_columns)?;
        Ok(Self { bytes, dim, padded, slots })
    }

    /// A slot alone, as if it was the only one of its block. `bytes` are those of [`SlotPlace::range`].
    pub fn decode_slot(
        place: &SlotPlace,
        dim: usize,
        padded: usize,
        bytes: Arc<AlignedBytes>,
    ) -> Result<Self, FormatError> {
        let slot = decode_slot(ObjectKind::RefineBlock, place, (dim, padded), &bytes, refine_columns)?;
        Ok(Self { bytes, dim, padded, slots: vec![slot] })
    }

    /// Elements of a vector.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Bits of a 1-bit code; a row has half as many bytes of nibbles.
    pub fn padded(&self) -> usize {
        self.padded
    }

    /// The bytes that it was decoded from.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The slots' index.
    pub fn slots(&self) -> &[SlotIndex] {
        &self.slots
    }

    /// Views of one slot. Panics when `slot` is out of range.
    pub fn slot(&self, slot: usize) -> RefineSlot<'_> {
        let index = &self.slots[slot];
        let [nibbles, f_add, f_rescale, f_error] =
            std::array::from_fn(|i| &self.bytes[index.columns[i].clone()]);
        RefineSlot {
            leaf: index.leaf,
            nibbles,
            f_add: cast(f_add),
            f_rescale: cast(f_rescale),
            f_error: cast(f_error),
        }
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.bytes.capacity() + self.slots.capacity() * size_of::<SlotIndex>()
    }
}
