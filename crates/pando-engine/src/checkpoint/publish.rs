//! Stores the manifest and creates the head.

use bytes::Bytes;
use pando_format::{Closing, Head, HeadRoot, Manifest, RootId, Stored};
use pando_store::{CreateOutcome, Key};

use super::plan::Base;
use crate::error::{Error, ErrorKind, Result};
use crate::log::floor_after;
use crate::rootio::{RootIo, stored, undecodable};

/// How the race for a head ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Race {
    /// The head names this root, whoever created it.
    Won(Head),
    /// Somebody else's head took the generation.
    Lost(Head),
}

/// Stores a manifest; its root id and length.
pub async fn store_manifest(io: &RootIo, manifest: &Manifest) -> Result<(RootId, u64)> {
    let bytes = manifest.encode().map_err(|e| Error::internal(format!("encoding a manifest: {e}")))?;
    // What cannot be read back must not be published.
    Manifest::decode(&bytes).map_err(|e| Error::internal(format!("a manifest does not decode: {e}")))?;
    let root = RootId::of(&bytes);
    let len = bytes.len() as u64;
    io.store()
        .put_content_addressed(&io.root_key(manifest.depth, &root), Bytes::from(bytes))
        .await
        .map_err(stored)?;
    Ok((root, len))
}

/// The log floor of the head that publishes a root just stored: its time of storage is the store's now. A root that was
/// there already (a checkpoint that is repeated) gives an earlier now, which only lets the floor lag.
pub async fn floor(io: &RootIo, newest: Option<&Head>, depth: u64, root: &RootId) -> Result<u64> {
    let Some(newest) = newest else { return Ok(0) };
    let now = io.store().head(&io.root_key(depth, root)).await.map_err(stored)?.last_modified;
    floor_after(io.store(), io.record(), newest, now).await
}

/// The head that publishes a root.
pub fn head(
    io: &RootIo,
    base: &Base,
    manifest: &Manifest,
    root: RootId,
    len: u64,
    log_floor: u64,
    closed: Option<Closing>,
) -> Head {
    Head {
        uuid: io.record().uuid,
        generation: base.generation + 1,
        root: Some(HeadRoot { root, depth: manifest.depth, len, parent: manifest.parent }),
        sequence: manifest.sequence,
        log_floor,
        next_row: manifest.next_row,
        cumulative_rows: manifest.counts.cumulative_rows,
        cumulative_bytes: manifest.counts.cumulative_bytes,
        closed,
    }
}

/// Creates the head if nobody has its generation. Everything that the root reaches must be stored before.
pub async fn create_head(io: &RootIo, head: &Head) -> Result<Race> {
    let key = Key::Head { uuid: io.record().uuid.0, generation: head.generation };
    let bytes = Bytes::from(head.encode().map_err(|e| Error::internal(format!("encoding a head: {e}")))?);
    for _ in 0..5 {
        match io.store().create_if_absent(&key, bytes.clone()).await {
            Ok(CreateOutcome::Created) => return Ok(Race::Won(head.clone())),
            Ok(CreateOutcome::Exists) => {}
            Err(e) if e.is_unclear() => {}
            Err(e) => return Err(stored(e)),
        }
        // Somebody's, perhaps our own whose answer was lost: what is stored counts.
        if let Some(bytes) = io.store().try_get(&key).await.map_err(stored)? {
            let found = Head::decode(&bytes).map_err(|e| undecodable(e, &key))?;
            return Ok(if found.root == head.root { Race::Won(found) } else { Race::Lost(found) });
        }
    }
    Err(Error::new(ErrorKind::Unavailable, "STORAGE_UNAVAILABLE", "storage did not take the new head"))
}
