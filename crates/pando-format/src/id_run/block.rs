//! One id block. Header counts: 0 ids n, 1 kind (1 integers, 2 strings), 2 bytes of text.
//! Sections: integers: ids u64[n], rows u64[n]; strings: rows u64[n], ends of ids u32[n], text.

use std::ops::Range;
use std::sync::Arc;

use crate::aligned::AlignedBytes;
use crate::block::{BlockReader, BlockWriter, cast};
use crate::error::{FormatError, ObjectKind};
use crate::ids::RecordId;
use crate::object::manifest::IdKind;

const KIND: ObjectKind = ObjectKind::IdBlock;

impl RecordId {
    /// Which order of runs the id belongs to.
    pub fn kind(&self) -> IdKind {
        match self {
            Self::U64(_) => IdKind::U64,
            Self::Str(_) => IdKind::Str,
        }
    }
}

/// Encodes an id block: ids of one kind, strictly ascending, each with its row.
pub fn encode_id_block(kind: IdKind, pairs: &[(RecordId, u64)]) -> Result<Vec<u8>, FormatError> {
    let invalid = |what: &str| FormatError::invalid(KIND, what);
    if !pairs.is_sorted_by(|a, b| a.0 < b.0) || pairs.iter().any(|(id, _)| id.kind() != kind) {
        return Err(invalid("its ids are not in order or not of one kind"));
    }
    let n = u32::try_from(pairs.len()).map_err(|_| invalid("it has too many ids"))?;
    let rows: Vec<u64> = pairs.iter().map(|(_, row)| *row).collect();
    let (mut numbers, mut ends, mut text) = (Vec::new(), Vec::new(), Vec::new());
    for (id, _) in pairs {
        match id {
            RecordId::U64(id) => numbers.push(*id),
            RecordId::Str(id) => {
                text.extend_from_slice(id.as_bytes());
                ends.push(u32::try_from(text.len()).map_err(|_| invalid("its ids exceed 4 GiB"))?);
            }
        }
    }
    let mut w = BlockWriter::new(KIND, &[n, kind as u32 + 1, text.len() as u32]);
    match kind {
        IdKind::U64 => {
            w.u64s(&numbers);
            w.u64s(&rows);
        }
        IdKind::Str => {
            w.u64s(&rows);
            w.u32s(&ends);
            w.bytes(&text);
        }
    }
    Ok(w.finish())
}

/// An id inside a block, not copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum IdView<'a> {
    U64(u64),
    Str(&'a str),
}

impl IdView<'_> {
    /// The id as its own value.
    pub fn to_id(self) -> RecordId {
        match self {
            Self::U64(id) => RecordId::U64(id),
            Self::Str(id) => RecordId::Str(id.to_owned()),
        }
    }
}

impl<'a> From<&'a RecordId> for IdView<'a> {
    fn from(id: &'a RecordId) -> Self {
        match id {
            RecordId::U64(id) => Self::U64(*id),
            RecordId::Str(id) => Self::Str(id),
        }
    }
}

/// A decoded id block.
#[derive(Clone, Debug)]
pub struct IdBlock {
    bytes: Arc<AlignedBytes>,
    kind: IdKind,
    rows: Range<usize>,
    /// Integers: the ids. Strings: their ends.
    keys: Range<usize>,
    text: Range<usize>,
}

impl IdBlock {
    /// Checks layout, text and order. The bytes' hash is checked by whoever read them.
    pub fn decode(bytes: Arc<AlignedBytes>) -> Result<Self, FormatError> {
        let mut r = BlockReader::new(KIND, 3, &bytes)?;
        let (n, text_len) = (r.count(0) as usize, r.count(2) as usize);
        let (kind, rows, keys, text) = match r.count(1) {
            1 if text_len != 0 => return Err(r.damaged("it has text beside numbers")),
            1 => {
                let keys = r.section(n, 8)?;
                (IdKind::U64, r.section(n, 8)?, keys, 0..0)
            }
            2 => (IdKind::Str, r.section(n, 8)?, r.section(n, 4)?, r.section(text_len, 1)?),
            _ => return Err(r.damaged("its ids are of an unknown kind")),
        };
        r.end()?;
        let block = Self { kind, rows, keys, text, bytes: Arc::clone(&bytes) };
        block.check().map_err(|what| FormatError::damaged(KIND, what))?;
        Ok(block)
    }

    fn check(&self) -> Result<(), &'static str> {
        const ORDER: &str = "its ids are not in order";
        match self.kind {
            IdKind::U64 if self.numbers().is_sorted_by(|a, b| a < b) => Ok(()),
            IdKind::U64 => Err(ORDER),
            IdKind::Str => {
                let text =
                    std::str::from_utf8(&self.bytes[self.text.clone()]).map_err(|_| "an id is not UTF-8")?;
                let ends = self.ends();
                let mut start = 0;
                let mut last: Option<&str> = None;
                for &end in ends {
                    let id = text.get(start..end as usize).ok_or("an id does not lie in its text")?;
                    if last.is_some_and(|last| last >= id) {
                        return Err(ORDER);
                    }
                    (start, last) = (end as usize, Some(id));
                }
                if start == text.len() { Ok(()) } else { Err("text follows its last id") }
            }
        }
    }

    fn numbers(&self) -> &[u64] {
        cast(&self.bytes[self.keys.clone()])
    }

    fn ends(&self) -> &[u32] {
        cast(&self.bytes[self.keys.clone()])
    }

    /// Number of ids.
    pub fn len(&self) -> usize {
        self.rows.len() / 8
    }

    /// True without ids.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Kind of its ids.
    pub fn kind(&self) -> IdKind {
        self.kind
    }

    /// Row numbers, in the order of ids.
    pub fn rows(&self) -> &[u64] {
        cast(&self.bytes[self.rows.clone()])
    }

    /// Id `i`. Panics when out of range.
    pub fn id(&self, i: usize) -> IdView<'_> {
        match self.kind {
            IdKind::U64 => IdView::U64(self.numbers()[i]),
            IdKind::Str => {
                let ends = self.ends();
                let start = if i == 0 { 0 } else { ends[i - 1] as usize };
                let bytes = &self.bytes[self.text.clone()][start..ends[i] as usize];
                IdView::Str(std::str::from_utf8(bytes).expect("ids were checked when the block was decoded"))
            }
        }
    }

    /// Row of an id, or None when the id is not in the block.
    pub fn find(&self, id: IdView<'_>) -> Option<u64> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.id(middle).cmp(&id) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Some(self.rows()[middle]),
            }
        }
        None
    }

    /// All (id, row) pairs in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (IdView<'_>, u64)> + '_ {
        (0..self.len()).map(|i| (self.id(i), self.rows()[i]))
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.bytes.capacity()
    }
}
