//! Index blocks: a 64-byte header, then columns of little-endian numbers in sections aligned to 64 bytes (small runs of
//! columns closer together), in an order and of lengths that follow from counts in the header. No offset is stored, so
//! none can lie; what lies between sections is zero, so that a block has one encoding.
//!
//! ```text
//! 0  4  "PNDB"     6   2  algorithm version     16  48  counts of the kind, then zeros
//! 4  1  kind       8   8  length of the block
//! 5  1  zero
//! ```

pub mod centroids;
pub mod codes;
pub mod leaf;
pub mod packed;
pub mod refine;
pub mod refs;
pub mod slots;

use std::ops::Range;

use crate::error::{FormatError, ObjectKind};
use crate::object::plan::ALGORITHM_VERSION;

pub(crate) const HEADER: usize = 64;
const MAGIC: &[u8; 4] = b"PNDB";

/// Where sections begin unless said otherwise.
pub(crate) const ALIGN: usize = 64;

/// Writes a block: sections in order, each at a multiple of 64 unless said otherwise.
pub(crate) struct BlockWriter {
    out: Vec<u8>,
    align: usize,
}

impl BlockWriter {
    pub(crate) fn new(kind: ObjectKind, counts: &[u32]) -> Self {
        let mut out = vec![0; HEADER];
        out[..4].copy_from_slice(MAGIC);
        out[4] = kind as u8;
        out[6..8].copy_from_slice(&(ALGORITHM_VERSION as u16).to_le_bytes());
        for (i, count) in counts.iter().enumerate() {
            out[16 + 4 * i..20 + 4 * i].copy_from_slice(&count.to_le_bytes());
        }
        Self { out, align: ALIGN }
    }

    /// The next section begins at a multiple of `first`, those after it at multiples of `rest`.
    pub(crate) fn run(&mut self, first: usize, rest: usize) {
        self.align = first;
        self.align();
        self.align = rest;
    }

    fn align(&mut self) {
        self.out.resize(self.out.len().next_multiple_of(self.align), 0);
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.align();
        self.out.extend_from_slice(bytes);
    }

    pub(crate) fn f32s(&mut self, values: &[f32]) {
        self.align();
        self.out.extend(values.iter().flat_map(|v| v.to_le_bytes()));
    }

    pub(crate) fn u64s(&mut self, values: &[u64]) {
        self.align();
        self.out.extend(values.iter().flat_map(|v| v.to_le_bytes()));
    }

    pub(crate) fn u32s(&mut self, values: &[u32]) {
        self.align();
        self.out.extend(values.iter().flat_map(|v| v.to_le_bytes()));
    }

    /// Without alignment: fields of a table row.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        let len = self.out.len() as u64;
        self.out[8..16].copy_from_slice(&len.to_le_bytes());
        self.out
    }
}

/// Walks over a block's sections, checking each against the length.
pub(crate) struct BlockReader<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) kind: ObjectKind,
    at: usize,
    align: usize,
}

impl<'a> BlockReader<'a> {
    /// Checks the header; `counts`: how many counts the kind has.
    pub(crate) fn new(kind: ObjectKind, counts: usize, bytes: &'a [u8]) -> Result<Self, FormatError> {
        let damaged = |what: &str| FormatError::damaged(kind, what);
        if bytes.len() < HEADER {
            return Err(damaged("it is shorter than its header"));
        }
        if &bytes[..4] != MAGIC || bytes[4] != kind as u8 || bytes[5] != 0 {
            return Err(damaged("it does not begin with the header of its kind"));
        }
        let found = u16::from_le_bytes([bytes[6], bytes[7]]);
        let supported = ALGORITHM_VERSION as u16;
        if found != supported {
            return Err(FormatError::Version { kind, found, supported });
        }
        let len = u64::from_le_bytes(*bytes[8..16].first_chunk().expect("8 bytes"));
        if len != bytes.len() as u64 {
            return Err(damaged("its length is not the stated one"));
        }
        if bytes[16 + 4 * counts..HEADER].iter().any(|b| *b != 0) {
            return Err(damaged("its header has more counts than its kind"));
        }
        Ok(Self { bytes, kind, at: HEADER, align: ALIGN })
    }

    /// Some of a block's sections, whose bytes are alone: they begin at a multiple of 64 (append slots: of less) in the block,
    /// so that what is aligned there is aligned here.
    pub(crate) fn of_part(kind: ObjectKind, bytes: &'a [u8]) -> Self {
        Self { bytes, kind, at: 0, align: ALIGN }
    }

    /// See [`BlockWriter::run`].
    pub(crate) fn run(&mut self, first: usize, rest: usize) -> Result<(), FormatError> {
        self.align = first;
        self.section(0, 0)?;
        self.align = rest;
        Ok(())
    }

    /// Count `i` of the header, i < 12.
    pub(crate) fn count(&self, i: usize) -> u32 {
        let at = 16 + 4 * i;
        u32::from_le_bytes(*self.bytes[at..at + 4].first_chunk().expect("4 bytes"))
    }

    /// The next section of `n` items of `size` bytes.
    pub(crate) fn section(&mut self, n: usize, size: usize) -> Result<Range<usize>, FormatError> {
        let start = self.at.next_multiple_of(self.align);
        let end = n.checked_mul(size).and_then(|len| start.checked_add(len));
        match end {
            Some(end) if end <= self.bytes.len() => {
                if self.bytes[self.at..start].iter().any(|b| *b != 0) {
                    return Err(self.damaged("there is something between its sections"));
                }
                self.at = end;
                Ok(start..end)
            }
            _ => Err(self.damaged("a section reaches past its end")),
        }
    }

    pub(crate) fn end(&self) -> Result<(), FormatError> {
        if self.at == self.bytes.len() { Ok(()) } else { Err(self.damaged("bytes follow its last section")) }
    }

    pub(crate) fn damaged(&self, what: &str) -> FormatError {
        FormatError::damaged(self.kind, what)
    }
}

/// A section as numbers. The sections of an aligned buffer are aligned and of whole items by construction.
pub(crate) fn cast<T: bytemuck::AnyBitPattern>(bytes: &[u8]) -> &[T] {
    bytemuck::try_cast_slice(bytes).expect("sections are aligned for their items and hold whole ones")
}
