//! Every key of DESIGN section 3, built and parsed in one place.
//!
//! ```text
//! names/<collection name>/<n>
//! ceiling/<n>
//! <uuid>/record
//! <uuid>/0/log/<sequence>
//! <uuid>/0/batches/<aim>-<nonce>
//! <uuid>/0/plans/<depth>-<parent root>-<n>
//! <uuid>/0/heads/<generation>
//! <uuid>/0/segments/<depth>-<hash>.arrow
//! <uuid>/0/packs/<depth>-<hash>
//! <uuid>/0/roots/<depth>-<hash>
//! <uuid>/tags/<tag>/<n>
//! <uuid>/pins/<fork uuid>
//! <uuid>/dropped/<depth>-<root>
//! ```
//! Numbers are 20 decimal digits, so that keys sort as numbers do; hashes are 64 hex digits, nonces 32, all lower
//! case. One object has exactly one key: what would parse to the same thing from another spelling is refused.

use std::fmt;

use uuid::Uuid;

/// What an object is. Labels metrics and errors; says how large an object may be that is read whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum ObjectKind {
    /// Who owns a collection name.
    Name,
    /// Highest format version that writers may write.
    Ceiling,
    /// A collection's configuration and lineage.
    Record,
    /// One entry of the log.
    Log,
    /// The body of a large log entry.
    Batch,
    /// The plan of a checkpoint.
    Plan,
    /// A numbered head.
    Head,
    /// Rows, as Arrow IPC.
    Segment,
    /// Many blocks.
    Pack,
    /// A manifest.
    Root,
    /// A name for a root.
    Tag,
    /// A fork's claim on a root.
    Pin,
    /// A sweep's mark on a root.
    Dropped,
    /// The start-up probe.
    Probe,
    /// Anything else.
    Other,
}

impl ObjectKind {
    /// All kinds, in the order of their discriminants.
    pub const ALL: [Self; 15] = [
        Self::Name,
        Self::Ceiling,
        Self::Record,
        Self::Log,
        Self::Batch,
        Self::Plan,
        Self::Head,
        Self::Segment,
        Self::Pack,
        Self::Root,
        Self::Tag,
        Self::Pin,
        Self::Dropped,
        Self::Probe,
        Self::Other,
    ];

    /// The word for users and metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Name => "collection name",
            Self::Ceiling => "version ceiling",
            Self::Record => "collection record",
            Self::Log => "log entry",
            Self::Batch => "log batch",
            Self::Plan => "checkpoint plan",
            Self::Head => "head",
            Self::Segment => "segment",
            Self::Pack => "pack",
            Self::Root => "root",
            Self::Tag => "tag",
            Self::Pin => "pin",
            Self::Dropped => "sweep mark",
            Self::Probe => "storage probe",
            Self::Other => "object",
        }
    }

    /// The largest object of this kind that is read whole, in bytes. A damaged store must not make a reader ask
    /// for more memory than a sound one could (CASES H31).
    pub fn max_whole_read(self) -> u64 {
        const MIB: u64 = 1 << 20;
        match self {
            Self::Log | Self::Batch => 256 * MIB,
            Self::Root => 2048 * MIB,
            Self::Segment | Self::Pack => 512 * MIB,
            Self::Plan => 16 * MIB,
            _ => MIB,
        }
    }
}

/// The key of one object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// `names/<name>/<n>`, see [`valid_name`].
    Name {
        /// The collection's name.
        name: String,
        /// From 1, no gaps; the newest counts.
        n: u64,
    },
    /// `ceiling/<n>`
    Ceiling {
        /// From 1, no gaps; the newest counts.
        n: u64,
    },
    /// `<uuid>/record`
    Record {
        /// The collection.
        uuid: Uuid,
    },
    /// `<uuid>/0/log/<sequence>`
    Log {
        /// The collection.
        uuid: Uuid,
        /// From 1, no gaps above the log floor.
        sequence: u64,
    },
    /// `<uuid>/0/batches/<aim>-<nonce>`
    Batch {
        /// The collection.
        uuid: Uuid,
        /// The log's end when the body was written.
        aim: u64,
        /// The writer's.
        nonce: [u8; 16],
    },
    /// `<uuid>/0/plans/<depth>-<parent>-<n>`
    Plan {
        /// The collection.
        uuid: Uuid,
        /// Depth of the root that the plan leads to.
        depth: u64,
        /// The parent root; zeros for the first.
        parent: [u8; 32],
        /// 0 unless an operator commanded otherwise; the newest counts.
        n: u64,
    },
    /// `<uuid>/0/heads/<generation>`
    Head {
        /// The collection.
        uuid: Uuid,
        /// From 1, no gaps.
        generation: u64,
    },
    /// `<uuid>/0/segments/<depth>-<hash>.arrow`
    Segment {
        /// The collection.
        uuid: Uuid,
        /// Depth of the root that first held it.
        depth: u64,
        /// BLAKE3 of the object.
        hash: [u8; 32],
    },
    /// `<uuid>/0/packs/<depth>-<hash>`
    Pack {
        /// The collection.
        uuid: Uuid,
        /// Depth of the root that first held it.
        depth: u64,
        /// BLAKE3 of the object.
        hash: [u8; 32],
    },
    /// `<uuid>/0/roots/<depth>-<hash>`
    Root {
        /// The collection.
        uuid: Uuid,
        /// The root's depth.
        depth: u64,
        /// The root id.
        hash: [u8; 32],
    },
    /// `<uuid>/tags/<tag>/<n>`, tag as in [`valid_name`].
    Tag {
        /// The collection.
        uuid: Uuid,
        /// The tag.
        tag: String,
        /// From 1, no gaps; the newest counts.
        n: u64,
    },
    /// `<uuid>/pins/<fork uuid>`
    Pin {
        /// The collection whose root is pinned.
        uuid: Uuid,
        /// The fork that pins it.
        fork: Uuid,
    },
    /// `<uuid>/dropped/<depth>-<root>`
    Dropped {
        /// The collection.
        uuid: Uuid,
        /// The root's depth.
        depth: u64,
        /// The root id.
        root: [u8; 32],
    },
    /// `probe/<nonce>`: written and deleted by the start-up probe.
    Probe {
        /// Fresh for each probe.
        nonce: [u8; 16],
    },
}

/// True for `[a-z0-9][a-z0-9._-]{0,127}`: what collections and tags may be called.
pub fn valid_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    (1..=128).contains(&bytes.len())
        && (bytes[0].is_ascii_lowercase() || bytes[0].is_ascii_digit())
        && bytes
            .iter()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'_' | b'-'))
}

impl Key {
    /// What the object is.
    pub fn kind(&self) -> ObjectKind {
        match self {
            Self::Name { .. } => ObjectKind::Name,
            Self::Ceiling { .. } => ObjectKind::Ceiling,
            Self::Record { .. } => ObjectKind::Record,
            Self::Log { .. } => ObjectKind::Log,
            Self::Batch { .. } => ObjectKind::Batch,
            Self::Plan { .. } => ObjectKind::Plan,
            Self::Head { .. } => ObjectKind::Head,
            Self::Segment { .. } => ObjectKind::Segment,
            Self::Pack { .. } => ObjectKind::Pack,
            Self::Root { .. } => ObjectKind::Root,
            Self::Tag { .. } => ObjectKind::Tag,
            Self::Pin { .. } => ObjectKind::Pin,
            Self::Dropped { .. } => ObjectKind::Dropped,
            Self::Probe { .. } => ObjectKind::Probe,
        }
    }

    /// The collection that the object belongs to, if any.
    pub fn uuid(&self) -> Option<Uuid> {
        match self {
            Self::Name { .. } | Self::Ceiling { .. } | Self::Probe { .. } => None,
            Self::Record { uuid }
            | Self::Log { uuid, .. }
            | Self::Batch { uuid, .. }
            | Self::Plan { uuid, .. }
            | Self::Head { uuid, .. }
            | Self::Segment { uuid, .. }
            | Self::Pack { uuid, .. }
            | Self::Root { uuid, .. }
            | Self::Tag { uuid, .. }
            | Self::Pin { uuid, .. }
            | Self::Dropped { uuid, .. } => Some(*uuid),
        }
    }

    /// The path under the store's prefix.
    pub fn path(&self) -> String {
        self.to_string()
    }

    /// The key of a path under the store's prefix; `None` for anything that [`Key::path`] would not produce.
    pub fn parse(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.split('/').collect();
        let key = match parts.as_slice() {
            ["names", name, n] if valid_name(name) => {
                Self::Name { name: (*name).to_owned(), n: parse_number(n)? }
            }
            ["ceiling", n] => Self::Ceiling { n: parse_number(n)? },
            ["probe", nonce] => Self::Probe { nonce: parse_hex(nonce)? },
            [uuid, "record"] => Self::Record { uuid: parse_uuid(uuid)? },
            [uuid, "tags", tag, n] if valid_name(tag) => {
                Self::Tag { uuid: parse_uuid(uuid)?, tag: (*tag).to_owned(), n: parse_number(n)? }
            }
            [uuid, "pins", fork] => Self::Pin { uuid: parse_uuid(uuid)?, fork: parse_uuid(fork)? },
            [uuid, "dropped", rest] => {
                let (depth, root) = parse_depth_hash(rest)?;
                Self::Dropped { uuid: parse_uuid(uuid)?, depth, root }
            }
            [uuid, "0", folder, rest] => Self::parse_shard(parse_uuid(uuid)?, folder, rest)?,
            _ => return None,
        };
        Some(key)
    }

    fn parse_shard(uuid: Uuid, folder: &str, rest: &str) -> Option<Self> {
        Some(match folder {
            "log" => Self::Log { uuid, sequence: parse_number(rest)? },
            "heads" => Self::Head { uuid, generation: parse_number(rest)? },
            "batches" => {
                let (aim, nonce) = rest.split_once('-')?;
                Self::Batch { uuid, aim: parse_number(aim)?, nonce: parse_hex(nonce)? }
            }
            "plans" => {
                let (depth, rest) = rest.split_once('-')?;
                let (parent, n) = rest.split_once('-')?;
                Self::Plan {
                    uuid,
                    depth: parse_number(depth)?,
                    parent: parse_hex(parent)?,
                    n: parse_number(n)?,
                }
            }
            "segments" => {
                let (depth, hash) = parse_depth_hash(rest.strip_suffix(".arrow")?)?;
                Self::Segment { uuid, depth, hash }
            }
            "packs" => {
                let (depth, hash) = parse_depth_hash(rest)?;
                Self::Pack { uuid, depth, hash }
            }
            "roots" => {
                let (depth, hash) = parse_depth_hash(rest)?;
                Self::Root { uuid, depth, hash }
            }
            _ => return None,
        })
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name { name, n } => write!(f, "names/{name}/{n:020}"),
            Self::Ceiling { n } => write!(f, "ceiling/{n:020}"),
            Self::Record { uuid } => write!(f, "{uuid}/record"),
            Self::Log { uuid, sequence } => write!(f, "{uuid}/0/log/{sequence:020}"),
            Self::Batch { uuid, aim, nonce } => write!(f, "{uuid}/0/batches/{aim:020}-{}", Hex(nonce)),
            Self::Plan { uuid, depth, parent, n } => {
                write!(f, "{uuid}/0/plans/{depth:020}-{}-{n:020}", Hex(parent))
            }
            Self::Head { uuid, generation } => write!(f, "{uuid}/0/heads/{generation:020}"),
            Self::Segment { uuid, depth, hash } => {
                write!(f, "{uuid}/0/segments/{depth:020}-{}.arrow", Hex(hash))
            }
            Self::Pack { uuid, depth, hash } => write!(f, "{uuid}/0/packs/{depth:020}-{}", Hex(hash)),
            Self::Root { uuid, depth, hash } => write!(f, "{uuid}/0/roots/{depth:020}-{}", Hex(hash)),
            Self::Tag { uuid, tag, n } => write!(f, "{uuid}/tags/{tag}/{n:020}"),
            Self::Pin { uuid, fork } => write!(f, "{uuid}/pins/{fork}"),
            Self::Dropped { uuid, depth, root } => write!(f, "{uuid}/dropped/{depth:020}-{}", Hex(root)),
            Self::Probe { nonce } => write!(f, "probe/{}", Hex(nonce)),
        }
    }
}

/// A folder of keys, for listing. Listing serves reports and garbage collection; nothing is decided by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Folder {
    /// Everything of the store.
    All,
    /// All collection names.
    Names,
    /// The numbers of one name.
    Name(String),
    /// Everything of one collection.
    Collection(Uuid),
    /// Log entries.
    Log(Uuid),
    /// Bodies of large entries.
    Batches(Uuid),
    /// Plans.
    Plans(Uuid),
    /// Heads.
    Heads(Uuid),
    /// Segments.
    Segments(Uuid),
    /// Packs.
    Packs(Uuid),
    /// Manifests.
    Roots(Uuid),
    /// All tags of a collection.
    Tags(Uuid),
    /// Pins.
    Pins(Uuid),
    /// Sweep marks.
    Dropped(Uuid),
}

impl Folder {
    /// The path under the store's prefix, without a slash at the end; empty for [`Folder::All`].
    pub fn path(&self) -> String {
        match self {
            Self::All => String::new(),
            Self::Names => "names".to_owned(),
            Self::Name(name) => format!("names/{name}"),
            Self::Collection(u) => u.to_string(),
            Self::Log(u) => format!("{u}/0/log"),
            Self::Batches(u) => format!("{u}/0/batches"),
            Self::Plans(u) => format!("{u}/0/plans"),
            Self::Heads(u) => format!("{u}/0/heads"),
            Self::Segments(u) => format!("{u}/0/segments"),
            Self::Packs(u) => format!("{u}/0/packs"),
            Self::Roots(u) => format!("{u}/0/roots"),
            Self::Tags(u) => format!("{u}/tags"),
            Self::Pins(u) => format!("{u}/pins"),
            Self::Dropped(u) => format!("{u}/dropped"),
        }
    }

    /// The kind of the objects in it, [`ObjectKind::Other`] where they are mixed.
    pub fn kind(&self) -> ObjectKind {
        match self {
            Self::All | Self::Collection(_) => ObjectKind::Other,
            Self::Names | Self::Name(_) => ObjectKind::Name,
            Self::Log(_) => ObjectKind::Log,
            Self::Batches(_) => ObjectKind::Batch,
            Self::Plans(_) => ObjectKind::Plan,
            Self::Heads(_) => ObjectKind::Head,
            Self::Segments(_) => ObjectKind::Segment,
            Self::Packs(_) => ObjectKind::Pack,
            Self::Roots(_) => ObjectKind::Root,
            Self::Tags(_) => ObjectKind::Tag,
            Self::Pins(_) => ObjectKind::Pin,
            Self::Dropped(_) => ObjectKind::Dropped,
        }
    }
}

/// Keys that are numbered from 1 (plans from 0) without gaps, so that the newest is found without listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Series {
    /// Owners of a collection name.
    Name(String),
    /// Version ceilings.
    Ceiling,
    /// Heads of a collection.
    Heads(Uuid),
    /// Log entries. Gaps may lie at and below the log floor only: pass it as `known`.
    Log(Uuid),
    /// Roots that a tag named.
    Tag(Uuid, String),
}

impl Series {
    /// The key of number `n`.
    pub fn key(&self, n: u64) -> Key {
        match self {
            Self::Name(name) => Key::Name { name: name.clone(), n },
            Self::Ceiling => Key::Ceiling { n },
            Self::Heads(uuid) => Key::Head { uuid: *uuid, generation: n },
            Self::Log(uuid) => Key::Log { uuid: *uuid, sequence: n },
            Self::Tag(uuid, tag) => Key::Tag { uuid: *uuid, tag: tag.clone(), n },
        }
    }
}

/// Lower-case hex, for keys and logs.
pub struct Hex<'a>(pub &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

fn parse_number(s: &str) -> Option<u64> {
    // Exactly 20 digits: `+1` and short forms would be second spellings of one number.
    (s.len() == 20 && s.bytes().all(|b| b.is_ascii_digit())).then(|| s.parse().ok())?
}

fn parse_hex<const N: usize>(s: &str) -> Option<[u8; N]> {
    let digit = |b: u8| match b {
        b'0'..=b'9' => Some(b - b'0'),
        b'a'..=b'f' => Some(b - b'a' + 10),
        _ => None,
    };
    let bytes = s.as_bytes();
    if bytes.len() != 2 * N {
        return None;
    }
    let mut out = [0u8; N];
    for (o, pair) in out.iter_mut().zip(bytes.chunks_exact(2)) {
        *o = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(out)
}

fn parse_uuid(s: &str) -> Option<Uuid> {
    let uuid = Uuid::try_parse(s).ok()?;
    (uuid.to_string() == s).then_some(uuid)
}

fn parse_depth_hash(s: &str) -> Option<(u64, [u8; 32])> {
    let (depth, hash) = s.split_once('-')?;
    Some((parse_number(depth)?, parse_hex(hash)?))
}

#[cfg(test)]
#[path = "keys_tests.rs"]
mod tests;
