//! Reads the log entries of a plan, in order, with their bodies.

use std::sync::Arc;

use futures::StreamExt;
use futures::stream;
use pando_format::{BodyPlace, Entry, Rows, Stored};
use pando_store::Key;

use crate::error::{Error, Result};
use crate::rootio::{RootIo, damaged, stored, undecodable};

/// Entries fetched ahead of the one in hand. Each is at most 64 MiB.
const AHEAD: usize = 2;

/// An entry and its bodies.
#[derive(Clone, Debug)]
pub struct LoadedEntry {
    pub entry: Arc<Entry>,
    /// One per body.
    pub bodies: Vec<Arc<Rows>>,
}

/// Reads one entry; its place in the log, its collection and its bodies' hashes are checked.
pub async fn load(io: &RootIo, sequence: u64) -> Result<LoadedEntry> {
    let uuid = io.record().uuid;
    let key = Key::Log { uuid: uuid.0, sequence };
    let bytes = io.store().get(&key).await.map_err(|e| match e.is_not_found() {
        true => Error::data_loss(format!("log entry {sequence} is missing"), e.internal().to_owned()),
        false => stored(e),
    })?;
    let entry = Entry::decode(&bytes).map_err(|e| undecodable(e, &key))?;
    if entry.uuid != uuid || entry.sequence != sequence {
        return Err(damaged(format!("log entry {sequence}: it belongs to another place")));
    }
    let mut bodies = Vec::with_capacity(entry.bodies.len());
    for body in &entry.bodies {
        let rows = match &body.place {
            BodyPlace::Inline(bytes) => body.rows(bytes, io.record().config.dim as usize),
            BodyPlace::External(name) => {
                let key = Key::Batch { uuid: uuid.0, aim: name.aim, nonce: name.nonce.0 };
                let bytes = io.store().get(&key).await.map_err(stored)?;
                body.rows(&bytes, io.record().config.dim as usize)
            }
        };
        bodies.push(Arc::new(rows.map_err(|e| undecodable(e, &key))?));
    }
    Ok(LoadedEntry { entry: Arc::new(entry), bodies })
}

/// Calls `f` for each of the entries, in order.
pub async fn for_each(
    io: &RootIo,
    sequences: impl Iterator<Item = u64>,
    mut f: impl FnMut(LoadedEntry) -> Result<()>,
) -> Result<()> {
    let mut entries = stream::iter(sequences.map(|sequence| load(io, sequence))).buffered(AHEAD);
    while let Some(entry) = entries.next().await {
        f(entry?)?;
    }
    Ok(())
}
