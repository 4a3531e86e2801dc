//! The envelope of small objects: magic, kind, version, length, payload, CRC32C.
//!
//! ```text
//! 0   4  "PNDO"        6  2  version (LE)          12 n  payload
//! 4   1  kind          8  4  payload length n      12+n 4  CRC32C of all bytes before
//! 5   1  zero
//! ```

use crate::codec::{Bad, Codec, Reader};
use crate::error::{FormatError, ObjectKind};

const MAGIC: &[u8; 4] = b"PNDO";
const HEADER: usize = 12;
const TRAILER: usize = 4;

/// Version of every enveloped object that this release writes.
pub const FORMAT_VERSION: u16 = 1;

/// An object with an envelope. `encode` and `decode` are inverse to each other, byte for byte.
pub trait Stored: StoredParts {
    /// The object's bytes. Fails only if the object breaks its own rules.
    fn encode(&self) -> Result<Vec<u8>, FormatError> {
        self.rules().map_err(|what| FormatError::invalid(Self::KIND, what))?;
        let mut out = Vec::with_capacity(256);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&[Self::KIND as u8, 0]);
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        self.put_payload(&mut out);
        let len = u32::try_from(out.len() - HEADER)
            .map_err(|_| FormatError::invalid(Self::KIND, "it is longer than 4 GiB"))?;
        out[8..12].copy_from_slice(&len.to_le_bytes());
        let crc = crc32c::crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        Ok(out)
    }

    /// Reads the object and checks envelope, checksum and the object's own rules.
    fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let payload = open(Self::KIND, bytes)?;
        let object = Self::take_payload(payload).map_err(|what| FormatError::damaged(Self::KIND, what))?;
        object.rules().map_err(|what| FormatError::damaged(Self::KIND, what))?;
        Ok(object)
    }
}

/// What an object supplies to be [`Stored`]. Implemented inside this crate only.
pub trait StoredParts: Sized {
    /// The kind byte.
    const KIND: ObjectKind;
    #[doc(hidden)]
    fn put_payload(&self, out: &mut Vec<u8>);
    #[doc(hidden)]
    fn take_payload(payload: &[u8]) -> Result<Self, Bad>;
    /// Rules between fields, checked on both ways.
    #[doc(hidden)]
    fn rules(&self) -> Result<(), Bad> {
        Ok(())
    }
}

impl<T: StoredParts> Stored for T {}

pub(crate) fn put_all<T: Codec>(value: &T, out: &mut Vec<u8>) {
    value.put(out);
}

pub(crate) fn take_all<T: Codec>(payload: &[u8]) -> Result<T, Bad> {
    let mut r = Reader::new(payload);
    let value = T::take(&mut r)?;
    r.end()?;
    Ok(value)
}

/// Implements [`StoredParts`] for a type with a codec.
macro_rules! stored {
    ($name:ty, $kind:ident) => {
        stored!($name, $kind, |_object: &$name| Ok(()));
    };
    ($name:ty, $kind:ident, $rules:expr) => {
        impl $crate::envelope::StoredParts for $name {
            const KIND: $crate::error::ObjectKind = $crate::error::ObjectKind::$kind;
            fn put_payload(&self, out: &mut Vec<u8>) {
                $crate::envelope::put_all(self, out);
            }
            fn take_payload(payload: &[u8]) -> Result<Self, $crate::codec::Bad> {
                $crate::envelope::take_all(payload)
            }
            fn rules(&self) -> Result<(), $crate::codec::Bad> {
                let rules: fn(&$name) -> Result<(), $crate::codec::Bad> = $rules;
                rules(self)
            }
        }
    };
}
pub(crate) use stored;

/// Checks the envelope and returns the payload.
fn open(kind: ObjectKind, bytes: &[u8]) -> Result<&[u8], FormatError> {
    let damaged = |what: &str| FormatError::damaged(kind, what);
    if bytes.len() < HEADER + TRAILER {
        return Err(damaged("it is shorter than its envelope"));
    }
    if &bytes[..4] != MAGIC {
        return Err(damaged("it does not begin with the magic number"));
    }
    let (body, trailer) = bytes.split_at(bytes.len() - TRAILER);
    // Checksum first: a flipped version must not read as "written by a newer release".
    if trailer != crc32c::crc32c(body).to_le_bytes() {
        return Err(FormatError::Checksum { kind });
    }
    if body[4] != kind as u8 {
        return Err(damaged("it is an object of another kind"));
    }
    if body[5] != 0 {
        return Err(damaged("a reserved byte is not zero"));
    }
    let version = u16::from_le_bytes([body[6], body[7]]);
    if version != FORMAT_VERSION {
        return Err(FormatError::Version { kind, found: version, supported: FORMAT_VERSION });
    }
    let len = u32::from_le_bytes([body[8], body[9], body[10], body[11]]) as usize;
    if len != body.len() - HEADER {
        return Err(damaged("its length is not the stated one"));
    }
    Ok(&body[HEADER..])
}
