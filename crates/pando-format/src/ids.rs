//! Identities: collections, roots, objects, blocks, records; and the hashes that are cut from BLAKE3.

use std::fmt;
use std::str::FromStr;

use crate::codec::{Bad, Codec, Reader, record};
use crate::error::{FormatError, InputError, ObjectKind};

/// A BLAKE3 hash. Shown as 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// BLAKE3 of `bytes`, the name of every content-addressed object.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_hex(&self.0, f)
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_hex(&self.0, f)
    }
}

/// Text that is not the identity it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a {0}")]
pub struct ParseError(pub &'static str);

impl FromStr for Hash {
    type Err = ParseError;
    fn from_str(s: &str) -> Result<Self, ParseError> {
        parse_hex(s).map(Self).ok_or(ParseError("64-digit lower-case hex hash"))
    }
}

fn fmt_hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|b| write!(f, "{b:02x}"))
}

/// Lower-case only: one spelling, so one key.
fn parse_hex<const N: usize>(s: &str) -> Option<[u8; N]> {
    let digit = |c: u8| match c {
        b'0'..=b'9' => Some(c - b'0'),
        b'a'..=b'f' => Some(c - b'a' + 10),
        _ => None,
    };
    let text = s.as_bytes();
    if text.len() != 2 * N {
        return None;
    }
    let mut out = [0; N];
    for (byte, pair) in out.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(out)
}

impl Codec for Hash {
    const MIN: usize = 32;
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, Bad> {
        r.array().map(Self)
    }
}

/// Id of a root: the BLAKE3 of its manifest's bytes, envelope included.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RootId(pub [u8; 32]);

impl RootId {
    /// Stands for "no root": the parent in the first plan's key.
    pub const NONE: Self = Self([0; 32]);

    /// Id of the root whose manifest has these bytes.
    pub fn of(manifest: &[u8]) -> Self {
        Self(Hash::of(manifest).0)
    }
}

impl fmt::Display for RootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_hex(&self.0, f)
    }
}

impl fmt::Debug for RootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_hex(&self.0, f)
    }
}

impl FromStr for RootId {
    type Err = ParseError;
    fn from_str(s: &str) -> Result<Self, ParseError> {
        parse_hex(s).map(Self).ok_or(ParseError("root id of 64 lower-case hex digits"))
    }
}

impl Codec for RootId {
    const MIN: usize = 32;
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, Bad> {
        r.array().map(Self)
    }
}

/// Identity of a collection, never used again after it is dropped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CollectionUuid(pub uuid::Uuid);

impl CollectionUuid {
    /// A new random identity.
    pub fn random() -> Self {
        Self(uuid::Uuid::new_v4())
    }
}

impl fmt::Display for CollectionUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_hyphenated().fmt(f)
    }
}

impl fmt::Debug for CollectionUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_hyphenated().fmt(f)
    }
}

impl FromStr for CollectionUuid {
    type Err = ParseError;
    /// Takes the spelling that `Display` gives and no other: one uuid, one key.
    fn from_str(s: &str) -> Result<Self, ParseError> {
        let uuid = uuid::Uuid::try_parse(s).map_err(|_| ParseError("uuid"))?;
        if uuid.as_hyphenated().to_string() == s {
            Ok(Self(uuid))
        } else {
            Err(ParseError("uuid in lower case with hyphens"))
        }
    }
}

impl Codec for CollectionUuid {
    const MIN: usize = 16;
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0.as_bytes());
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, Bad> {
        Ok(Self(uuid::Uuid::from_bytes(r.array()?)))
    }
}

/// Random number of one write attempt, by which a writer knows its own entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nonce(pub [u8; 16]);

impl Nonce {
    /// A new random nonce.
    pub fn random() -> Self {
        Self(*uuid::Uuid::new_v4().as_bytes())
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_hex(&self.0, f)
    }
}

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_hex(&self.0, f)
    }
}

impl FromStr for Nonce {
    type Err = ParseError;
    fn from_str(s: &str) -> Result<Self, ParseError> {
        parse_hex(s).map(Self).ok_or(ParseError("nonce of 32 lower-case hex digits"))
    }
}

impl Codec for Nonce {
    const MIN: usize = 16;
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, Bad> {
        r.array().map(Self)
    }
}

/// A number as it stands in keys: 20 decimal digits, so that names sort as numbers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Number(pub u64);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:020}", self.0)
    }
}

impl FromStr for Number {
    type Err = ParseError;
    fn from_str(s: &str) -> Result<Self, ParseError> {
        let bad = ParseError("number of 20 decimal digits");
        if s.len() != 20 || !s.bytes().all(|b| b.is_ascii_digit()) {
            return Err(bad);
        }
        s.parse().map(Self).map_err(|_| bad)
    }
}

record! {
    /// Names a content-addressed object. The depth of the root that wrote it says under which collection
    /// of a fork's lineage it lies, and lets the collector tell old from new without a clock.
    #[derive(Copy, Eq, PartialOrd, Ord, Hash)]
    pub struct ObjectRef {
        /// Depth of the root that wrote the object, from 1.
        pub depth: u64,
        /// BLAKE3 of the object's bytes.
        pub hash: Hash,
    }
}

impl fmt::Display for ObjectRef {
    /// `<depth>-<hash>`, as in keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", Number(self.depth), self.hash)
    }
}

impl FromStr for ObjectRef {
    type Err = ParseError;
    fn from_str(s: &str) -> Result<Self, ParseError> {
        let (depth, hash) = s.split_once('-').ok_or(ParseError("object name <depth>-<hash>"))?;
        Ok(Self { depth: depth.parse::<Number>()?.0, hash: hash.parse()? })
    }
}

record! {
    /// Where a block lies and what its bytes hash to.
    #[derive(Copy, Eq, PartialOrd, Ord, Hash)]
    pub struct BlockRef {
        /// The pack that holds it.
        pub pack: ObjectRef,
        /// Byte offset in the pack, a multiple of 64.
        pub offset: u64,
        /// Length in bytes, without padding.
        pub len: u32,
        /// BLAKE3 of the block's bytes.
        pub hash: Hash,
    }
}

impl BlockRef {
    /// Byte range of the block in its pack.
    pub fn range(&self) -> std::ops::Range<u64> {
        self.offset..self.offset.saturating_add(u64::from(self.len))
    }

    /// Checks length and hash. To be called on every block read from storage before it is used or cached.
    pub fn verify(&self, kind: ObjectKind, bytes: &[u8]) -> Result<(), FormatError> {
        if bytes.len() == self.len as usize && Hash::of(bytes) == self.hash {
            Ok(())
        } else {
            Err(FormatError::Checksum { kind })
        }
    }
}

/// Longest record id in bytes of UTF-8.
pub const MAX_ID_BYTES: usize = 512;

/// Id of a record. Integers and strings are never equal; integers sort first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordId {
    /// An unsigned integer.
    U64(u64),
    /// 1–512 bytes of UTF-8.
    Str(String),
}

impl RecordId {
    /// Checks the length of a string id.
    pub fn check(&self) -> Result<(), InputError> {
        match self {
            Self::Str(s) if s.is_empty() => Err(InputError::batch("the id is empty")),
            Self::Str(s) if s.len() > MAX_ID_BYTES => {
                Err(InputError::batch(format!("the id has {} bytes, more than {MAX_ID_BYTES}", s.len())))
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for RecordId {
    /// Integers bare, strings quoted and escaped: the two cannot be mixed up in a message.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::U64(n) => n.fmt(f),
            Self::Str(s) => write!(f, "{s:?}"),
        }
    }
}

impl From<u64> for RecordId {
    fn from(id: u64) -> Self {
        Self::U64(id)
    }
}

impl From<&str> for RecordId {
    fn from(id: &str) -> Self {
        Self::Str(id.to_owned())
    }
}

impl From<String> for RecordId {
    fn from(id: String) -> Self {
        Self::Str(id)
    }
}

impl Codec for RecordId {
    const MIN: usize = 5;
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::U64(n) => {
                out.push(0);
                n.put(out);
            }
            Self::Str(s) => {
                out.push(1);
                s.put(out);
            }
        }
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, Bad> {
        let id = match r.array::<1>()? {
            [0] => Self::U64(u64::take(r)?),
            [1] => Self::Str(String::take(r)?),
            _ => return Err("an id is neither an integer nor a string"),
        };
        if id.check().is_err() { Err("a string id is empty or too long") } else { Ok(id) }
    }
}

const ID_DOMAIN: &[u8] = b"pando.id.v1";
const ROW_DOMAIN: &[u8] = b"pando.row.v1";

/// First 8 bytes (little-endian) of BLAKE3("pando.id.v1" ‖ 0 ‖ u64 LE) or BLAKE3("pando.id.v1" ‖ 1 ‖ UTF-8).
pub fn id_hash(id: &RecordId) -> u64 {
    match id {
        RecordId::U64(n) => id_hash_u64(*n),
        RecordId::Str(s) => id_hash_str(s),
    }
}

/// [`id_hash`] of an integer id.
pub fn id_hash_u64(id: u64) -> u64 {
    cut(blake3::Hasher::new().update(ID_DOMAIN).update(&[0]).update(&id.to_le_bytes()))
}

/// [`id_hash`] of a string id.
pub fn id_hash_str(id: &str) -> u64 {
    cut(blake3::Hasher::new().update(ID_DOMAIN).update(&[1]).update(id.as_bytes()))
}

fn cut(hasher: &blake3::Hasher) -> u64 {
    let hash = hasher.finalize();
    u64::from_le_bytes(*hash.as_bytes().first_chunk().expect("a hash has 32 bytes"))
}

/// Fingerprint of a row number: first 16 bytes (little-endian) of BLAKE3("pando.row.v1" ‖ row LE). Sets of
/// rows are compared by the wrapping sums of their fingerprints.
pub fn row_fingerprint(row: u64) -> u128 {
    let mut input = [0; 20];
    input[..12].copy_from_slice(ROW_DOMAIN);
    input[12..].copy_from_slice(&row.to_le_bytes());
    u128::from_le_bytes(*blake3::hash(&input).as_bytes().first_chunk().expect("a hash has 32 bytes"))
}
