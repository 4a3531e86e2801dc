//! From the errors of store and format to the engine's: the public part names the kind of object, never its place.

use std::time::Duration;

use pando_format::FormatError;
use pando_store::StoreError;

use crate::error::{Error, ErrorKind};

/// An error of the store while reading or writing what a root needs. An object that a root refers to and that is not
/// there is lost data.
pub fn stored(error: StoreError) -> Error {
    use pando_store::ErrorKind as Kind;
    let internal = error.internal().to_owned();
    match error.kind() {
        Kind::NotFound | Kind::Corrupt | Kind::TooShort => Error::data_loss(error.to_string(), internal),
        Kind::Unavailable | Kind::Unclear => {
            Error::new(ErrorKind::Unavailable, "STORAGE_UNAVAILABLE", error.to_string())
                .with_internal(internal)
                .with_retry_after(Duration::from_secs(1))
        }
        Kind::Locked | Kind::Unsupported | Kind::Invalid => Error::internal(internal),
    }
}

/// Stored bytes that do not decode. `place` (a key, a block) is for the log.
pub fn undecodable(error: FormatError, place: impl std::fmt::Display) -> Error {
    match error {
        FormatError::Version { .. } => Error::new(ErrorKind::Unavailable, "NEWER_FORMAT", error.to_string())
            .with_internal(format!("{place}: {error}")),
        _ => Error::data_loss(error.to_string(), format!("{place}: {error}")),
    }
}

/// [`damaged`], at a place (a key, a block) that is for the log alone.
pub fn damaged_at(what: impl std::fmt::Display, place: impl std::fmt::Display) -> Error {
    Error::data_loss(format!("stored data is damaged ({what})"), format!("{what}: {place}"))
}

/// Stored objects that contradict each other: `what` names the kind of object and may be shown.
pub fn damaged(what: impl Into<String>) -> Error {
    let what = what.into();
    Error::data_loss(format!("stored data is damaged ({what})"), what)
}
