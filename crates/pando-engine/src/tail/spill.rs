//! Reading a body again that the tail no longer holds.

use std::sync::Arc;

use pando_format::{BodyPlace, Entry, Rows};
use pando_store::{BlockKey, Key};

use crate::block::Block;
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::rootio::stored;

/// The rows of body `index` of `entry`, through the block cache. Length and hash are checked.
pub async fn body_rows(env: &Environment, entry: &Arc<Entry>, index: u32, dim: usize) -> Result<Arc<Rows>> {
    let key = BlockKey { hash: entry.bodies[index as usize].hash.0, offset: entry.sequence };
    let (store, entry) = (env.store.clone(), entry.clone());
    let load = move || async move {
        let body = &entry.bodies[index as usize];
        let bytes = match &body.place {
            BodyPlace::Inline(bytes) => bytes.clone(),
            BodyPlace::External(name) => {
                let key = Key::Batch { uuid: entry.uuid.0, aim: name.aim, nonce: name.nonce.0 };
                store.get(&key).await.map_err(stored)?
            }
        };
        let rows = body.rows(&bytes, dim).map_err(Error::from)?;
        let weight = super::memory_of(&rows) as usize;
        Ok((Block::Rows(Arc::new(rows)), weight))
    };
    let cached = env.cache.get_or_load(key, load).await?;
    let Block::Rows(rows) = &*cached else { unreachable!("a body's key holds rows") };
    Ok(rows.clone())
}
