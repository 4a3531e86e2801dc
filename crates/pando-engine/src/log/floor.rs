//! The floor that the next head may state. Ages are by the store's clock alone: what was last modified when.

use std::time::{Duration, SystemTime};

use pando_format::{CollectionRecord, Head};
use pando_store::{Key, Store};

use super::belief::{Aged, next_floor};
use super::heads::read_head;
use crate::error::Result;
use crate::rootio::stored;

/// The floor for a head after `newest`, when the store's clock shows at least `now`. Looks for the newest head that is
/// old enough: one request when `newest` itself is, else some more for every doubling of the number of heads that are not.
///
/// An older answer, or none, is always safe: floors may lag.
pub async fn floor_after(
    store: &Store,
    record: &CollectionRecord,
    newest: &Head,
    now: SystemTime,
) -> Result<u64> {
    let retention = Duration::from_secs(record.config.log_retention_seconds);
    match newest_aged(store, record, newest.generation, now, retention).await? {
        // A head at or below the floor's own says nothing new.
        None => Ok(newest.log_floor),
        Some((generation, age)) => {
            let head = match generation == newest.generation {
                true => Some(newest.clone()),
                false => read_head(store, record.uuid.0, generation).await?,
            };
            let aged = head.map(|head| Aged { sequence: head.sequence, age });
            Ok(next_floor(newest.log_floor, aged, retention))
        }
    }
}

/// The newest head up to `generation` whose age is at least `age`, and its age.
pub async fn newest_aged(
    store: &Store,
    record: &CollectionRecord,
    generation: u64,
    now: SystemTime,
    age: Duration,
) -> Result<Option<(u64, Duration)>> {
    let aged = |generation: u64| async move {
        let key = Key::Head { uuid: record.uuid.0, generation };
        let info = store.try_head(&key).await.map_err(stored)?;
        let found = info.map(|info| now.duration_since(info.last_modified).unwrap_or_default());
        Ok::<_, crate::error::Error>(found.filter(|found| *found >= age))
    };
    // Down from the newest in doubling steps to one that is old, then between. Heads were published in their order;
    // should the store's clock have gone back in between, what is found is old all the same.
    let (mut young, mut step, mut old) = (generation + 1, 1, None);
    while old.is_none() && young > 1 {
        let at = young.saturating_sub(step).max(1);
        match aged(at).await? {
            Some(found) => old = Some((at, found)),
            None => (young, step) = (at, step * 2),
        }
    }
    let Some((mut low, mut found)) = old else { return Ok(None) };
    while young - low > 1 {
        let middle = low + (young - low) / 2;
        match aged(middle).await? {
            Some(age) => (low, found) = (middle, age),
            None => young = middle,
        }
    }
    Ok(Some((low, found)))
}
