//! Reading entries.

use std::sync::Arc;

use bytes::Bytes;
use pando_format::{BodyPlace, CollectionUuid, Entry, Stored};
use pando_store::Key;

use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::query::on_cpu;
use crate::rootio::{damaged_at, stored, undecodable};
use crate::tail::LoadedEntry;

/// What is at a place in the log.
#[derive(Debug)]
pub enum Fetched {
    /// Nothing yet.
    Absent,
    /// An entry.
    Entry(Box<Entry>),
}

/// The entry at `sequence`, header and operations; checked to be that entry of that collection.
pub async fn fetch_entry(env: &Environment, uuid: CollectionUuid, sequence: u64) -> Result<Fetched> {
    let key = Key::Log { uuid: uuid.0, sequence };
    let Some(bytes) = env.store.try_get(&key).await.map_err(stored)? else { return Ok(Fetched::Absent) };
    let entry = Entry::decode(&bytes).map_err(|e| undecodable(e, &key))?;
    if entry.uuid != uuid || entry.sequence != sequence {
        return Err(damaged_at("log entry: it is another entry", &key));
    }
    Ok(Fetched::Entry(Box::new(entry)))
}

/// Fetches and decodes the bodies of an entry. Decoding is CPU work.
pub async fn load_entry(env: &Environment, entry: Arc<Entry>, dim: usize) -> Result<LoadedEntry> {
    let mut bytes: Vec<Bytes> = Vec::with_capacity(entry.bodies.len());
    for body in &entry.bodies {
        bytes.push(match &body.place {
            BodyPlace::Inline(bytes) => bytes.clone(),
            BodyPlace::External(name) => {
                let key = Key::Batch { uuid: entry.uuid.0, aim: name.aim, nonce: name.nonce.0 };
                env.store.get(&key).await.map_err(stored)?
            }
        });
    }
    let shared = entry.clone();
    let bodies = on_cpu(&env.cpu, move || -> Result<Vec<_>> {
        let pairs = shared.bodies.iter().zip(&bytes);
        pairs.map(|(body, bytes)| body.rows(bytes, dim).map(Arc::new).map_err(Error::from)).collect()
    })
    .await??;
    Ok(LoadedEntry { entry, bodies })
}
