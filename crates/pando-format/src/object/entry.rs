//! Log entry: what one create-if-absent adds to a collection's log.

use bytes::Bytes;

use crate::codec::{Bad, Codec, Reader, record};
use crate::envelope::stored;
use crate::error::{FormatError, ObjectKind};
use crate::ids::{CollectionUuid, Hash, Nonce, Number, RecordId};
use crate::object::head::Closing;
use crate::row_set::RowSet;
use crate::rows::Rows;

/// A body longer than this is an object of its own under `batches/`.
pub const MAX_INLINE_BODY: usize = 256 * 1024;
/// Most bytes of records in one entry.
pub const MAX_ENTRY_BYTES: u64 = 64 << 20;
/// An entry may point to an external body only if its sequence is at most the body's aim plus this.
pub const MAX_AIM_DISTANCE: u64 = 1024;

record! {
    /// Name of an external body: `<aim>-<nonce>`.
    #[derive(Copy, Eq, PartialOrd, Ord, Hash)]
    pub struct BodyName {
        /// End of the log when the body was written.
        pub aim: u64,
        /// Random.
        pub nonce: Nonce,
    }
}

impl std::fmt::Display for BodyName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", Number(self.aim), self.nonce)
    }
}

impl std::str::FromStr for BodyName {
    type Err = crate::ids::ParseError;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let (aim, nonce) = s.split_once('-').ok_or(crate::ids::ParseError("body name <aim>-<nonce>"))?;
        Ok(Self { aim: aim.parse::<Number>()?.0, nonce: nonce.parse()? })
    }
}

/// Where the bytes of a body are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BodyPlace {
    /// In the entry itself.
    Inline(Bytes),
    /// In an object of its own.
    External(BodyName),
}

impl Codec for BodyPlace {
    const MIN: usize = 5;
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Inline(bytes) => {
                out.push(0);
                bytes.put(out);
            }
            Self::External(name) => {
                out.push(1);
                name.put(out);
            }
        }
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, Bad> {
        match r.array::<1>()? {
            [0] => Bytes::take(r).map(Self::Inline),
            [1] => BodyName::take(r).map(Self::External),
            _ => Err("a body is neither inline nor external"),
        }
    }
}

record! {
    /// A body: records as an Arrow IPC stream (see [`Rows::to_body`]).
    #[derive(Eq)]
    pub struct Body {
        /// Records in it.
        pub rows: u32,
        /// Its length in bytes.
        pub len: u64,
        /// BLAKE3 of its bytes.
        pub hash: Hash,
        /// Where it is.
        pub place: BodyPlace,
    }
}

impl Body {
    /// A body of these rows: the reference, and its bytes. The bytes are to be stored under `external`
    /// first when they are longer than [`MAX_INLINE_BODY`]; otherwise they are inline and `external` is
    /// not used.
    pub fn new(rows: &Rows, external: BodyName) -> Result<(Self, Bytes), FormatError> {
        let bytes = Bytes::from(rows.to_body()?);
        let place = if bytes.len() > MAX_INLINE_BODY {
            BodyPlace::External(external)
        } else {
            BodyPlace::Inline(bytes.clone())
        };
        let rows = u32::try_from(rows.len())
            .map_err(|_| FormatError::invalid(ObjectKind::Body, "it has 2^32 records or more"))?;
        Ok((Self { rows, len: bytes.len() as u64, hash: Hash::of(&bytes), place }, bytes))
    }

    /// Decodes the body from its bytes, inline or fetched; length and hash are checked first.
    pub fn rows(&self, bytes: &[u8], dim: usize) -> Result<Rows, FormatError> {
        if bytes.len() as u64 != self.len || Hash::of(bytes) != self.hash {
            return Err(FormatError::Checksum { kind: ObjectKind::Body });
        }
        let rows = Rows::from_body(bytes, dim)?;
        if rows.len() != self.rows as usize {
            return Err(FormatError::damaged(ObjectKind::Body, "it does not have the stated number of rows"));
        }
        Ok(rows)
    }
}

/// One physical operation. Operations of an entry apply in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// Records `from..to` of body `body` replace what their ids had. The upserts of an entry go through
    /// all records of all its bodies exactly once, in order: the place of a record in that walk, added to
    /// the entry's `first_row`, is its row number.
    Upsert {
        /// Index in the entry's bodies.
        body: u32,
        /// First record.
        from: u32,
        /// One past the last record.
        to: u32,
    },
    /// The records of these ids die.
    DeleteIds(Vec<RecordId>),
    /// These rows die.
    DeleteRows(RowSet),
    /// Nothing after this entry counts.
    Closed(Closing),
    /// The bytes of these rows must go. Reserved: this release writes none, and keeps them when read.
    Purge(RowSet),
}

impl Codec for Operation {
    const MIN: usize = 2;
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Upsert { body, from, to } => {
                out.push(1);
                body.put(out);
                from.put(out);
                to.put(out);
            }
            Self::DeleteIds(ids) => {
                out.push(2);
                ids.put(out);
            }
            Self::DeleteRows(rows) => {
                out.push(3);
                rows.put(out);
            }
            Self::Closed(closing) => {
                out.push(4);
                closing.put(out);
            }
            Self::Purge(rows) => {
                out.push(5);
                rows.put(out);
            }
        }
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, Bad> {
        Ok(match r.array::<1>()?[0] {
            1 => Self::Upsert { body: u32::take(r)?, from: u32::take(r)?, to: u32::take(r)? },
            2 => Self::DeleteIds(Vec::take(r)?),
            3 => Self::DeleteRows(RowSet::take(r)?),
            4 => Self::Closed(Closing::take(r)?),
            5 => Self::Purge(RowSet::take(r)?),
            _ => return Err("an unknown operation"),
        })
    }
}

record! {
    /// What the caller of a keyed write was told; told again when it retries.
    #[derive(Copy, Eq, Default)]
    pub struct Outcome {
        /// Distinct records written (upsert, update) or found and deleted (delete).
        pub affected: u64,
        /// Records asked for and not found (delete, update).
        pub missing: u64,
    }
}

record! {
    /// An idempotency key and what its call did.
    #[derive(Eq)]
    pub struct KeyRecord {
        /// The caller's key, 1 to 128 bytes.
        pub key: String,
        /// BLAKE3 of the call's canonical bytes: a repeated key with another body is refused.
        pub body_hash: Hash,
        /// What the caller was told.
        pub outcome: Outcome,
    }
}

/// Longest idempotency key in bytes.
pub const MAX_KEY_BYTES: usize = 128;

record! {
    /// A log entry.
    pub struct Entry {
        /// The collection, checked against the key it was read from.
        pub uuid: CollectionUuid,
        /// Its place in the log, from 1.
        pub sequence: u64,
        /// The writer's own random number.
        pub nonce: Nonce,
        /// Row number of its first record. The fold takes its rows only if this is the running next row.
        pub first_row: u64,
        /// Records in its bodies.
        pub rows: u64,
        /// Bytes counted for the tail: the bodies' lengths plus [`Entry::operation_bytes`].
        pub bytes: u64,
        /// `rows` of all entries up to and including this one.
        pub cumulative_rows: u64,
        /// `bytes` of all entries up to and including this one.
        pub cumulative_bytes: u64,
        /// What it does, in order.
        pub operations: Vec<Operation>,
        /// Idempotency keys of the calls in it.
        pub keys: Vec<KeyRecord>,
        /// Its bodies.
        pub bodies: Vec<Body>,
    }
}

impl Entry {
    /// Encoded length of the operations, the part of an entry's `bytes` that is not in bodies.
    pub fn operation_bytes(operations: &[Operation]) -> u64 {
        let mut out = Vec::new();
        for operation in operations {
            operation.put(&mut out);
        }
        out.len() as u64
    }

    /// Row number of the first record of body `index`.
    pub fn first_row_of(&self, index: usize) -> u64 {
        self.first_row + self.bodies[..index].iter().map(|b| u64::from(b.rows)).sum::<u64>()
    }

    /// One past the row number of its last record.
    pub fn next_row(&self) -> u64 {
        self.first_row + self.rows
    }

    /// The closing in it, if any.
    pub fn closing(&self) -> Option<Closing> {
        self.operations.iter().find_map(|o| if let Operation::Closed(c) = o { Some(*c) } else { None })
    }

    fn check(&self) -> Result<(), Bad> {
        if self.sequence == 0 {
            return Err("its sequence is 0");
        }
        if self.rows != self.bodies.iter().map(|b| u64::from(b.rows)).sum::<u64>() {
            return Err("its row count is not that of its bodies");
        }
        if self.first_row.checked_add(self.rows).is_none() {
            return Err("its row numbers overflow");
        }
        if self.cumulative_rows < self.rows || self.cumulative_bytes < self.bytes {
            return Err("its cumulative counts are below its own");
        }
        for body in &self.bodies {
            match &body.place {
                BodyPlace::Inline(bytes) if bytes.len() as u64 != body.len => {
                    return Err("an inline body does not have its length");
                }
                BodyPlace::Inline(bytes) if bytes.len() > MAX_INLINE_BODY => {
                    return Err("an inline body is too long");
                }
                BodyPlace::External(name) if self.sequence > name.aim.saturating_add(MAX_AIM_DISTANCE) => {
                    return Err("an external body was aimed too far before this entry");
                }
                _ => {}
            }
            if body.rows == 0 {
                return Err("a body has no rows");
            }
        }
        self.check_walk()?;
        if self.keys.iter().any(|k| k.key.is_empty() || k.key.len() > MAX_KEY_BYTES) {
            return Err("an idempotency key is empty or too long");
        }
        Ok(())
    }

    /// Upserts go through all records of all bodies exactly once, in order.
    fn check_walk(&self) -> Result<(), Bad> {
        const WALK: Bad = "its upserts do not go through its bodies in order";
        let (mut body, mut at) = (0usize, 0u32);
        for operation in &self.operations {
            let &Operation::Upsert { body: b, from, to } = operation else { continue };
            if self.bodies.get(body).is_some_and(|here| here.rows == at) {
                (body, at) = (body + 1, 0);
            }
            let here = self.bodies.get(body).ok_or(WALK)?;
            if b as usize != body || from != at || to <= from || to > here.rows {
                return Err(WALK);
            }
            at = to;
        }
        let done = match self.bodies.last() {
            None => body == 0 && at == 0,
            Some(last) => body + 1 == self.bodies.len() && at == last.rows,
        };
        if done { Ok(()) } else { Err(WALK) }
    }
}

stored!(Entry, Entry, Entry::check);
