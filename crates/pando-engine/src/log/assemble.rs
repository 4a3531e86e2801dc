//! From calls to one entry: bodies, operations, keys.

use std::sync::Arc;

use bytes::Bytes;
use pando_format::{Body, BodyName, Closing, Hash, KeyRecord, Nonce, Operation, RecordId, Rows};

use crate::error::{Error, Result};

/// Consecutive small upserts share a body up to so many bytes of vectors.
const SHARED_BODY_BYTES: usize = 4 << 20;

/// What a call asks of the log.
#[derive(Clone, Debug)]
pub enum Write {
    /// Insert or replace.
    Upsert(Arc<Rows>),
    /// Delete by id.
    DeleteIds(Vec<RecordId>),
    /// Close the log.
    Close,
}

impl Write {
    /// Bytes that it counts for in a group.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Upsert(rows) => crate::tail::memory_of(rows),
            Self::DeleteIds(ids) => ids.len() as u64 * 32,
            Self::Close => 0,
        }
    }

    /// Hash of what is asked for: a repeated idempotency key must come with the same.
    pub fn hash(&self) -> Result<Hash> {
        Ok(match self {
            Self::Upsert(rows) => Hash::of(&rows.to_body().map_err(Error::from)?),
            Self::DeleteIds(ids) => Hash::of(format!("delete {ids:?}").as_bytes()),
            Self::Close => Hash::of(b"close"),
        })
    }
}

/// The variable part of an entry.
#[derive(Debug, Default)]
pub struct Contents {
    /// In order.
    pub operations: Vec<Operation>,
    /// References, and the bytes of each body.
    pub bodies: Vec<(Body, Bytes)>,
    /// Decoded bodies.
    pub rows: Vec<Arc<Rows>>,
    /// Idempotency keys.
    pub keys: Vec<KeyRecord>,
    /// Records in the bodies.
    pub count: u64,
    /// Bytes counted for the tail.
    pub bytes: u64,
}

/// Builds bodies and operations of `writes`, in order. `aim` is the log's end now; each external body gets a nonce.
/// CPU work: encodes and hashes all vectors.
pub fn assemble(
    writes: &[Write],
    dim: usize,
    aim: u64,
    mut nonce: impl FnMut() -> [u8; 16],
) -> Result<Contents> {
    let mut contents = Contents::default();
    let mut at = 0;
    while at < writes.len() {
        match &writes[at] {
            Write::Upsert(first) => {
                let mut end = at + 1;
                let mut bytes = first.vectors().len() * 4;
                while let Some(Write::Upsert(next)) = writes.get(end) {
                    bytes += next.vectors().len() * 4;
                    if bytes > SHARED_BODY_BYTES {
                        break;
                    }
                    end += 1;
                }
                let rows = match end - at {
                    1 => first.clone(),
                    _ => {
                        let parts: Vec<&Rows> = writes[at..end]
                            .iter()
                            .filter_map(|w| if let Write::Upsert(rows) = w { Some(&**rows) } else { None })
                            .collect();
                        Arc::new(Rows::concat(dim, &parts).map_err(Error::from)?)
                    }
                };
                at = end;
                if rows.is_empty() {
                    continue;
                }
                let name = BodyName { aim, nonce: Nonce(nonce()) };
                let (body, bytes) = Body::new(&rows, name).map_err(Error::from)?;
                let operation =
                    Operation::Upsert { body: contents.bodies.len() as u32, from: 0, to: body.rows };
                contents.count += u64::from(body.rows);
                contents.bytes += body.len;
                contents.operations.push(operation);
                contents.bodies.push((body, bytes));
                contents.rows.push(rows);
            }
            Write::DeleteIds(ids) => {
                contents.operations.push(Operation::DeleteIds(ids.clone()));
                at += 1;
            }
            Write::Close => {
                contents.operations.push(Operation::Closed(Closing { successor: None }));
                at += 1;
            }
        }
    }
    contents.bytes += pando_format::Entry::operation_bytes(&contents.operations);
    Ok(contents)
}
