//! Reading of refine blocks; see [`super::leaf`].

use std::sync::Arc;

use crate::aligned::AlignedBytes;
use crate::block::cast;
use crate::block::leaf::{SlotIndex, decode_slots};
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
        let (dim, padded, slots) = decode_slots(ObjectKind::RefineBlock, &bytes, |r, s| {
            Ok([
                r.section(s.n, s.padded / 2)?,
                r.section(s.n, 4)?,
                r.section(s.n, 4)?,
                r.section(s.n, 4)?,
                0..0,
                0..0,
            ])
        })?;
        Ok(Self { bytes, dim, padded, slots })
    }

    /// Elements of a vector.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Bits of a 1-bit code; a row has half as many bytes of nibbles.
    pub fn padded(&self) -> usize {
        self.padded
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
