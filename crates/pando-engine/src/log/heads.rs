//! Heads: found by number, never by listing.

use pando_format::{Head, Stored};
use pando_store::{Key, Series, Store};
use uuid::Uuid;

use crate::error::Result;
use crate::rootio::{damaged, damaged_at, stored, undecodable};

/// Head number `generation`, if it exists.
pub async fn read_head(store: &Store, uuid: Uuid, generation: u64) -> Result<Option<Head>> {
    let key = Key::Head { uuid, generation };
    let Some(bytes) = store.try_get(&key).await.map_err(stored)? else { return Ok(None) };
    let head = Head::decode(&bytes).map_err(|e| undecodable(e, &key))?;
    if head.uuid.0 != uuid || head.generation != generation {
        return Err(damaged_at("head: it is another head", &key));
    }
    Ok(Some(head))
}

/// The newest head, found from one that is known to exist (0: none is known).
pub async fn newest_head(store: &Store, uuid: Uuid, known: u64) -> Result<Option<Head>> {
    let newest = store.newest_after(&Series::Heads(uuid), known, known + 1).await.map_err(stored)?;
    match newest {
        0 => Ok(None),
        generation => match read_head(store, uuid, generation).await? {
            Some(head) => Ok(Some(head)),
            None => Err(damaged("head: one that existed is gone")),
        },
    }
}
