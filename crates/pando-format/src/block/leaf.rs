//! Leaf blocks and refine blocks: slots of rows and codes of sibling leaves.
//!
//! Leaf block. Header counts: 0 slots, 1 dimension d, 2 padded dimension p. Sections:
//! slot table (24 bytes a slot: u64 leaf id, u32 primaries, u32 secondaries, u8 kind, 7 zeros), then for each
//! slot, n = primaries + secondaries: centroid f32[d] (whole slots only), rows u64[n], f_add f32[n],
//! f_rescale f32[n], norm f32[n], 1-bit codes in the packed layout of 32 rows: ceil(n/32) × 32 × p/8 bytes in a whole
//! slot. In an append slot the last block leaves out the rows that are not there: n × p/8 bytes. It is filled up when
//! the block is decoded.
//!
//! Refine block. Header counts as above. Sections: the same slot table, then for each slot: nibbles n × p/2
//! row-major, f_add f32[n], f_rescale f32[n], f_error f32[n].
//!
//! The sections of a whole slot begin at multiples of 64. An append slot often has a row or two, so its sections follow
//! each other without gaps; the first begins at a multiple of 8 in a leaf block, of 32 in a refine block (so that no load
//! of a vector of nibbles is split).

use std::ops::Range;
use std::sync::Arc;

use crate::aligned::AlignedBytes;
use crate::block::codes::check_padded;
use crate::block::packed::{cut, fill_into, is_filled_with_zeros, packed_len};
use crate::block::slots::{Shape, SlotIndex, SlotKind, SlotPlace, decode_slot, decode_slots};
use crate::block::{BlockReader, BlockWriter, cast};
use crate::error::{FormatError, ObjectKind};

/// Rows of a slot: primaries ascending, then secondaries ascending.
fn in_order(rows: &[u64], n_primary: usize) -> bool {
    let (primaries, secondaries) = rows.split_at(n_primary);
    primaries.is_sorted_by(|a, b| a < b) && secondaries.is_sorted_by(|a, b| a < b)
}

/// One slot of a leaf block to be written, and of its refine block.
#[derive(Clone, Copy, Debug)]
pub struct SlotParts<'a> {
    /// The leaf.
    pub leaf: u64,
    /// Whole or append.
    pub kind: SlotKind,
    /// Centroid of `dim` elements for a whole slot, empty otherwise.
    pub centroid: &'a [f32],
    /// How many of `rows` are primaries.
    pub n_primary: usize,
    /// Row numbers: primaries ascending, then secondaries ascending.
    pub rows: &'a [u64],
    /// Constant term of the 1-bit estimate.
    pub f_add: &'a [f32],
    /// Scale of the 1-bit estimate.
    pub f_rescale: &'a [f32],
    /// Residual norm, rounded up.
    pub norm: &'a [f32],
    /// 1-bit codes in the packed layout.
    pub packed: &'a [u8],
    /// Second code plane; present exactly when the collection has refine on.
    pub refine: Option<RefineParts<'a>>,
}

/// The refine part of a slot.
#[derive(Clone, Copy, Debug)]
pub struct RefineParts<'a> {
    /// Nibbles, row-major, padded/2 bytes a row.
    pub nibbles: &'a [u8],
    /// Constant term.
    pub f_add: &'a [f32],
    /// Scale.
    pub f_rescale: &'a [f32],
    /// Error bound factor.
    pub f_error: &'a [f32],
}

fn writer(
    kind: ObjectKind,
    dim: usize,
    padded: usize,
    slots: &[SlotParts<'_>],
) -> Result<BlockWriter, FormatError> {
    let invalid = |what: &str| FormatError::invalid(kind, what);
    check_padded(padded).map_err(invalid)?;
    let n = u32::try_from(slots.len()).map_err(|_| invalid("it has too many slots"))?;
    let mut w = BlockWriter::new(kind, &[n, dim as u32, padded as u32]);
    for slot in slots {
        let secondaries =
            slot.rows.len().checked_sub(slot.n_primary).ok_or(invalid("it has too few rows"))?;
        let count = |n: usize| u32::try_from(n).map_err(|_| invalid("a slot has too many rows"));
        w.raw(&slot.leaf.to_le_bytes());
        w.raw(&count(slot.n_primary)?.to_le_bytes());
        w.raw(&count(secondaries)?.to_le_bytes());
        w.raw(&[u8::from(slot.kind == SlotKind::Append), 0, 0, 0, 0, 0, 0, 0]);
    }
    Ok(w)
}

/// Encodes a leaf block.
pub fn encode_leaf_block(dim: usize, padded: usize, slots: &[SlotParts<'_>]) -> Result<Vec<u8>, FormatError> {
    let invalid = |what: &str| FormatError::invalid(ObjectKind::LeafBlock, what);
    let mut w = writer(ObjectKind::LeafBlock, dim, padded, slots)?;
    for slot in slots {
        let n = slot.rows.len();
        let centroid = if slot.kind == SlotKind::Whole { dim } else { 0 };
        if slot.centroid.len() != centroid
            || [slot.f_add.len(), slot.f_rescale.len(), slot.norm.len()] != [n; 3]
            || slot.packed.len() != packed_len(n, padded)
        {
            return Err(invalid("the columns of a slot have different lengths"));
        }
        if !in_order(slot.rows, slot.n_primary) {
            return Err(invalid("the rows of a slot are not in order"));
        }
        if !is_filled_with_zeros(slot.packed, n, padded) {
            return Err(invalid("there are codes of rows that do not exist"));
        }
        let (first, rest) = slot.kind.alignment(ObjectKind::LeafBlock);
        w.run(first, rest);
        if slot.kind == SlotKind::Whole {
            w.f32s(slot.centroid);
        }
        w.u64s(slot.rows);
        w.f32s(slot.f_add);
        w.f32s(slot.f_rescale);
        w.f32s(slot.norm);
        match slot.kind {
            SlotKind::Whole => w.bytes(slot.packed),
            SlotKind::Append => w.bytes(&cut(slot.packed, n, padded)),
        }
    }
    Ok(w.finish())
}

/// Encodes the refine block of the same slots. Every slot must have its refine part.
pub fn encode_refine_block(
    dim: usize,
    padded: usize,
    slots: &[SlotParts<'_>],
) -> Result<Vec<u8>, FormatError> {
    let invalid = |what: &str| FormatError::invalid(ObjectKind::RefineBlock, what);
    let mut w = writer(ObjectKind::RefineBlock, dim, padded, slots)?;
    for slot in slots {
        let n = slot.rows.len();
        let refine = slot.refine.ok_or_else(|| invalid("a slot has no refine part"))?;
        if [refine.f_add.len(), refine.f_rescale.len(), refine.f_error.len()] != [n; 3]
            || refine.nibbles.len() != n * (padded / 2)
        {
            return Err(invalid("the columns of a slot have different lengths"));
        }
        let (first, rest) = slot.kind.alignment(ObjectKind::RefineBlock);
        w.run(first, rest);
        w.bytes(refine.nibbles);
        w.f32s(refine.f_add);
        w.f32s(refine.f_rescale);
        w.f32s(refine.f_error);
    }
    Ok(w.finish())
}

/// A slot of a leaf block: views into the block's bytes.
#[derive(Clone, Copy, Debug)]
pub struct LeafSlot<'a> {
    /// The leaf.
    pub leaf: u64,
    /// Whole or append.
    pub kind: SlotKind,
    /// How many of `rows` are primaries.
    pub n_primary: usize,
    /// Centroid; empty in an append slot.
    pub centroid: &'a [f32],
    /// Row numbers: primaries ascending, then secondaries ascending.
    pub rows: &'a [u64],
    /// Constant term of the 1-bit estimate.
    pub f_add: &'a [f32],
    /// Scale of the 1-bit estimate.
    pub f_rescale: &'a [f32],
    /// Residual norm, rounded up.
    pub norm: &'a [f32],
    /// 1-bit codes in the packed layout.
    pub packed: &'a [u8],
    /// The bytes of the block that these come from.
    pub stored: &'a [u8],
}

/// The sections of a slot of a leaf block.
fn leaf_columns(r: &mut BlockReader<'_>, s: &Shape) -> Result<[Range<usize>; 6], FormatError> {
    let centroid = if s.kind == SlotKind::Whole { r.section(s.dim, 4)? } else { 0..0 };
    Ok([
        centroid,
        r.section(s.n, 8)?,
        r.section(s.n, 4)?,
        r.section(s.n, 4)?,
        r.section(s.n, 4)?,
        match s.kind {
            SlotKind::Whole => r.section(s.n.div_ceil(32), 4 * s.padded)?,
            SlotKind::Append => r.section(s.n, s.padded / 8)?,
        },
    ])
}

/// A decoded leaf block: its bytes and where the columns of each slot are. Cheap to clone and to read from.
#[derive(Clone, Debug)]
pub struct DecodedLeafBlock {
    bytes: Arc<AlignedBytes>,
    dim: usize,
    padded: usize,
    slots: Vec<SlotIndex>,
    /// Packed codes of append slots, filled up, one after the other.
    filled: Arc<AlignedBytes>,
}

impl DecodedLeafBlock {
    /// Checks the block's layout once. The bytes' hash is checked by whoever read them.
    pub fn decode(bytes: Arc<AlignedBytes>) -> Result<Self, FormatError> {
        let (dim, padded, slots) = decode_slots(ObjectKind::LeafBlock, &bytes, leaf_columns)?;
        Self::checked(bytes, dim, padded, slots)
    }

    /// A slot alone, as if it was the only one of its block. `bytes` are those of [`SlotPlace::range`].
    pub fn decode_slot(
        place: &SlotPlace,
        dim: usize,
        padded: usize,
        bytes: Arc<AlignedBytes>,
    ) -> Result<Self, FormatError> {
        let slot = decode_slot(ObjectKind::LeafBlock, place, (dim, padded), &bytes, leaf_columns)?;
        Self::checked(bytes, dim, padded, vec![slot])
    }

    fn checked(
        bytes: Arc<AlignedBytes>,
        dim: usize,
        padded: usize,
        mut slots: Vec<SlotIndex>,
    ) -> Result<Self, FormatError> {
        let damaged = |what| Err(FormatError::damaged(ObjectKind::LeafBlock, what));
        let mut end = 0;
        for slot in &mut slots {
            let (n, packed) = (slot.n_primary + slot.n_secondary, &bytes[slot.columns[5].clone()]);
            if !in_order(cast(&bytes[slot.columns[1].clone()]), slot.n_primary) {
                return damaged("the rows of a slot are not in order");
            }
            match slot.kind {
                SlotKind::Whole if !is_filled_with_zeros(packed, n, padded) => {
                    return damaged("there are codes of rows that do not exist");
                }
                SlotKind::Whole => {}
                SlotKind::Append => {
                    slot.filled = end..end + packed_len(n, padded);
                    end = slot.filled.end;
                }
            }
        }
        let filled = AlignedBytes::written(end, |out| {
            for slot in slots.iter().filter(|slot| slot.kind == SlotKind::Append) {
                let n = slot.n_primary + slot.n_secondary;
                fill_into(&bytes[slot.columns[5].clone()], n, padded, &mut out[slot.filled.clone()]);
            }
        });
        Ok(Self { bytes, dim, padded, slots, filled: Arc::new(filled) })
    }

    /// Elements of a centroid.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Bits of a code.
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
    pub fn slot(&self, slot: usize) -> LeafSlot<'_> {
        let index = &self.slots[slot];
        let [centroid, rows, f_add, f_rescale, norm, stored] =
            std::array::from_fn(|i| &self.bytes[index.columns[i].clone()]);
        let packed = match index.kind {
            SlotKind::Whole => stored,
            SlotKind::Append => &self.filled[index.filled.clone()],
        };
        LeafSlot {
            leaf: index.leaf,
            kind: index.kind,
            n_primary: index.n_primary,
            centroid: cast(centroid),
            rows: cast(rows),
            f_add: cast(f_add),
            f_rescale: cast(f_rescale),
            norm: cast(norm),
            packed,
            stored,
        }
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.bytes.capacity() + self.filled.capacity() + self.slots.capacity() * size_of::<SlotIndex>()
    }
}
