//! The one error type of this crate.
//!
//! What callers branch on is the [`ErrorKind`]; what a user may see is [`std::fmt::Display`]; what an operator
//! needs (key, path, host, the backend's own words) is [`StoreError::internal`] and goes to the log only
//! (DESIGN law 10).

use std::fmt;
use std::sync::Arc;

use crate::keys::ObjectKind;

/// What went wrong, named for what a caller does about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The object is not there.
    NotFound,
    /// A write may or may not have been applied. Only reading the object can tell.
    Unclear,
    /// The store did not answer, refused, or is out of space. Nothing was applied; trying later may help.
    Unavailable,
    /// The bytes are not the bytes that were written (checksum, length field, content).
    Corrupt,
    /// Fewer bytes came than were asked for, or the object is shorter than its reference says.
    TooShort,
    /// Another server owns this data directory.
    Locked,
    /// The store lacks something Pando relies on (exclusive create, for one).
    Unsupported,
    /// The caller asked for something that cannot be: an empty range, an object over its size limit, a bad name.
    Invalid,
}

/// An error of the store. Cheap to clone, so that one failed load can be told to all who wait for it.
#[derive(Clone)]
pub struct StoreError {
    kind: ErrorKind,
    object: ObjectKind,
    owner_pid: Option<u32>,
    internal: Arc<str>,
}

impl StoreError {
    /// A new error about an object of the given kind. `internal` is for the log and may name keys and hosts.
    pub fn new(kind: ErrorKind, object: ObjectKind, internal: impl Into<String>) -> Self {
        Self { kind, object, owner_pid: None, internal: internal.into().into() }
    }

    /// The object failed a checksum or does not decode.
    pub fn corrupt(object: ObjectKind, internal: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corrupt, object, internal)
    }

    pub(crate) fn locked(owner_pid: Option<u32>, internal: impl Into<String>) -> Self {
        Self { owner_pid, ..Self::new(ErrorKind::Locked, ObjectKind::Other, internal) }
    }

    /// What went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What kind of object it went wrong with.
    pub fn object(&self) -> ObjectKind {
        self.object
    }

    /// The detail for the log. Never shown to users: it may hold keys, paths and hosts.
    pub fn internal(&self) -> &str {
        &self.internal
    }

    /// The process that holds the data directory, when the error is [`ErrorKind::Locked`] and it is known.
    pub fn owner_pid(&self) -> Option<u32> {
        self.owner_pid
    }

    /// True if the object is not there.
    pub fn is_not_found(&self) -> bool {
        self.kind == ErrorKind::NotFound
    }

    /// True if a write may or may not have been applied.
    pub fn is_unclear(&self) -> bool {
        self.kind == ErrorKind::Unclear
    }

    /// True if trying the same again later may succeed without anybody repairing anything.
    pub fn is_transient(&self) -> bool {
        matches!(self.kind, ErrorKind::Unavailable | ErrorKind::Unclear)
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = self.object.label();
        match self.kind {
            ErrorKind::NotFound => write!(f, "{what} not found"),
            ErrorKind::Unclear => write!(f, "it is not known whether the {what} was written"),
            ErrorKind::Unavailable => write!(f, "storage is not available ({what})"),
            ErrorKind::Corrupt => write!(f, "stored data is damaged ({what})"),
            ErrorKind::TooShort => write!(f, "stored data is incomplete ({what})"),
            ErrorKind::Locked => match self.owner_pid {
                Some(pid) => write!(f, "the data directory is in use by another server, process {pid}"),
                None => write!(f, "the data directory is in use by another server"),
            },
            ErrorKind::Unsupported => write!(f, "this storage lacks a capability that is needed ({what})"),
            ErrorKind::Invalid => write!(f, "invalid storage request ({what})"),
        }
    }
}

impl fmt::Debug for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreError({:?}, {:?}: {})", self.kind, self.object, self.internal)
    }
}

impl std::error::Error for StoreError {}
