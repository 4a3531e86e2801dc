//! One error for the crate: what kind of object is damaged, or what a caller's input got wrong.
//! No path, key or host ever appears here; the store adds that to its own log.

use std::fmt;

/// What kind of object some bytes were supposed to be. The discriminant is the kind byte on storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ObjectKind {
    /// Collection record.
    Record = 1,
    /// Log entry.
    Entry = 2,
    /// Plan of a checkpoint.
    Plan = 3,
    /// Head.
    Head = 4,
    /// Owner of a collection name.
    Name = 5,
    /// Root manifest.
    Manifest = 6,
    /// Tag on a root.
    Tag = 7,
    /// Pin of a fork.
    Pin = 8,
    /// Mark of a sweep.
    Sweep = 9,
    /// References of an inner node's or group's children.
    NodeRefs = 16,
    /// 4-bit centroid codes of a node's children.
    NodeCodes = 17,
    /// Full-precision centroids of a node's children.
    Centroids = 18,
    /// Leaf slots: rows, factors, 1-bit codes.
    LeafBlock = 19,
    /// Refine slots: nibbles and factors.
    RefineBlock = 20,
    /// Sorted (id, row) pairs.
    IdBlock = 21,
    /// Index and filters of a part of an id run.
    IdIndex = 22,
    /// Dead rows, a chunk or a delta.
    Deaths = 23,
    /// Recent nonces and idempotency keys.
    Window = 24,
    /// Places and page checksums of a segment.
    SegmentSide = 25,
    /// Pack of blocks.
    Pack = 32,
    /// Segment (Arrow IPC file).
    Segment = 33,
    /// Body of a log entry (Arrow IPC stream).
    Body = 34,
}

impl fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Record => "collection record",
            Self::Entry => "log entry",
            Self::Plan => "plan",
            Self::Head => "head",
            Self::Name => "collection name",
            Self::Manifest => "manifest",
            Self::Tag => "tag",
            Self::Pin => "pin",
            Self::Sweep => "sweep mark",
            Self::NodeRefs => "node references block",
            Self::NodeCodes => "node codes block",
            Self::Centroids => "centroid block",
            Self::LeafBlock => "leaf block",
            Self::RefineBlock => "refine block",
            Self::IdBlock => "id block",
            Self::IdIndex => "id index block",
            Self::Deaths => "deaths block",
            Self::Window => "write window block",
            Self::SegmentSide => "segment side block",
            Self::Pack => "pack",
            Self::Segment => "segment",
            Self::Body => "log entry body",
        })
    }
}

/// Why bytes or values were refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The bytes are not a valid object of this kind.
    #[error("damaged {kind}: {what}")]
    Damaged {
        /// What the bytes were supposed to be.
        kind: ObjectKind,
        /// What is wrong with them.
        what: String,
    },
    /// The bytes do not have the hash or checksum they should have.
    #[error("{kind} does not match its checksum")]
    Checksum {
        /// What the bytes were supposed to be.
        kind: ObjectKind,
    },
    /// A newer or never-written format version. Not damage: another release wrote it.
    #[error("{kind} has format version {found}; this release reads up to {supported}")]
    Version {
        /// What the bytes were supposed to be.
        kind: ObjectKind,
        /// Version in the bytes.
        found: u16,
        /// Newest version this release reads.
        supported: u16,
    },
    /// The caller asked to write something that the format cannot hold.
    #[error("cannot write {kind}: {what}")]
    Invalid {
        /// What was to be written.
        kind: ObjectKind,
        /// Which rule it breaks.
        what: String,
    },
    /// Writing to the caller's sink failed.
    #[error("writing {kind} failed: {what}")]
    Sink {
        /// What was being written.
        kind: ObjectKind,
        /// The sink's error.
        what: String,
    },
    /// Records handed in by a caller are refused.
    #[error(transparent)]
    Input(#[from] InputError),
}

impl FormatError {
    pub(crate) fn damaged(kind: ObjectKind, what: impl Into<String>) -> Self {
        Self::Damaged { kind, what: what.into() }
    }

    pub(crate) fn invalid(kind: ObjectKind, what: impl Into<String>) -> Self {
        Self::Invalid { kind, what: what.into() }
    }
}

/// Why a batch of records is refused (INVALID_ARGUMENT): which column, which record, what was wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputError {
    /// Position of the first bad record in the batch, from 0. None when the whole batch is wrong.
    pub row: Option<u64>,
    /// Id of that record as text, when it has one.
    pub id: Option<String>,
    /// Column or attribute at fault.
    pub column: Option<String>,
    /// What is wrong, in words for the caller.
    pub what: String,
}

impl InputError {
    /// A fault of the batch as a whole.
    pub fn batch(what: impl Into<String>) -> Self {
        Self { row: None, id: None, column: None, what: what.into() }
    }

    /// A fault of one column.
    pub fn column(column: impl Into<String>, what: impl Into<String>) -> Self {
        Self { row: None, id: None, column: Some(column.into()), what: what.into() }
    }

    /// A fault of one record in one column.
    pub fn row(row: usize, column: impl Into<String>, what: impl Into<String>) -> Self {
        Self { row: Some(row as u64), id: None, column: Some(column.into()), what: what.into() }
    }

    /// The same error with the record's id filled in.
    #[must_use]
    pub fn with_id(mut self, id: impl ToString) -> Self {
        self.id = Some(id.to_string());
        self
    }
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(row) = self.row {
            write!(f, "record {row}")?;
            if let Some(id) = &self.id {
                write!(f, " (id {id})")?;
            }
            f.write_str(", ")?;
        }
        if let Some(column) = &self.column {
            write!(f, "column {column:?}: ")?;
        }
        f.write_str(&self.what)
    }
}

impl std::error::Error for InputError {}
