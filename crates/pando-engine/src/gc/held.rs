//! Which roots are kept, and what they reach.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use bytes::Bytes;
use futures::TryStreamExt;
use pando_format::{Hash, Head, Manifest, Nonce, PinRecord, RootId, RootRef, Stored, SweepRecord, TagRecord};
use pando_store::{Folder, Key, Series};

use super::{Sweep, rules};
use crate::error::{Error, Result};
use crate::log::{newest_aged, newest_head, read_head};
use crate::rootio::{RootIo, damaged, stored, undecodable};

/// Marks that stay. One would do; a listing that runs while the newest is written and older ones go sees some of them.
const MARKS_KEPT: usize = 8;

/// Objects that kept roots reach.
#[derive(Debug, Default)]
pub struct Held {
    keys: BTreeSet<Key>,
    /// Roots kept for their age.
    pub recent: u64,
    /// Others, kept because they are named.
    pub named: u64,
}

impl Held {
    /// Whether a kept root reaches the object.
    pub fn has(&self, key: &Key) -> bool {
        match key {
            // All plans of one checkpoint stay together: the newest counts.
            Key::Plan { uuid, depth, parent, .. } => {
                self.keys.contains(&Key::Plan { uuid: *uuid, depth: *depth, parent: *parent, n: 0 })
            }
            key => self.keys.contains(key),
        }
    }

    /// Everything that must stay. `head`: the head that was read first.
    pub async fn find(sweep: &Sweep, io: &RootIo, head: &Head, now: SystemTime) -> Result<Self> {
        let (store, uuid) = (io.store(), io.record().uuid.0);
        let old = newest_aged(store, io.record(), head.generation, now, sweep.root_retention).await?;
        let oldest = rules::oldest_kept(old.map(|(generation, _)| generation));
        let read = |generation: u64| async move {
            let head = read_head(store, uuid, generation).await?;
            head.ok_or_else(|| damaged(format!("head {generation} is missing")))
        };
        let first = read(oldest).await?;
        if !sweep.dry_run {
            mark(sweep, io, head, &first).await?;
        }
        // Kept roots are listed after the head was read and the mark was written.
        let newest = newest_head(store, uuid, head.generation).await?;
        let newest = newest.ok_or_else(|| damaged("head: one that existed is gone"))?;
        let mut held = Self::default();
        let mut seen = BTreeSet::new();
        for generation in oldest..=newest.generation {
            let head = read(generation).await?;
            let Some(root) = head.root else { continue };
            if !seen.insert(root.root) {
                continue;
            }
            match manifest(io, root.depth, &root.root).await? {
                Some(manifest) => {
                    held.hold(io, root.root, &manifest);
                    held.recent += 1;
                }
                // Collected when the retention was shorter than it is now: there is nothing left to keep.
                None if generation < newest.generation => {}
                None => return Err(missing("the newest root")),
            }
            sweep.report("roots", held.recent);
        }
        for (what, name) in names(io, true).await? {
            if seen.insert(name.root) {
                let manifest = manifest(io, name.depth, &name.root).await?;
                held.hold(io, name.root, &manifest.ok_or_else(|| missing(&what))?);
                held.named += 1;
            }
        }
        Ok(held)
    }

    /// What pins reach: all that is kept of a collection that was dropped.
    pub async fn by_pins(io: &RootIo) -> Result<Self> {
        let mut held = Self::default();
        for (what, name) in names(io, false).await? {
            let manifest = manifest(io, name.depth, &name.root).await?;
            held.hold(io, name.root, &manifest.ok_or_else(|| missing(&what))?);
            held.named += 1;
        }
        Ok(held)
    }

    fn hold(&mut self, io: &RootIo, root: RootId, manifest: &Manifest) {
        self.keys.insert(io.root_key(manifest.depth, &root));
        let parent = manifest.parent.map_or([0; 32], |parent| parent.0);
        // Its plans, so that the root can be made again while its log is kept.
        self.keys.insert(Key::Plan { uuid: io.record().uuid.0, depth: manifest.depth, parent, n: 0 });
        self.keys.extend(manifest.packs.iter().map(|pack| io.pack_key(&pack.object)));
        self.keys.extend(manifest.segments.iter().map(|segment| io.segment_key(&segment.object)));
    }
}

fn missing(what: &str) -> Error {
    damaged(format!("root: the manifest of {what} is missing; nothing was collected"))
}

/// The manifest of a root, if it is there. Damage is an error.
async fn manifest(io: &RootIo, depth: u64, root: &RootId) -> Result<Option<Manifest>> {
    let key = io.root_key(depth, root);
    let Some(bytes) = io.store().try_get(&key).await.map_err(stored)? else { return Ok(None) };
    if Hash::of(&bytes).0 != root.0 {
        return Err(damaged("root: a manifest does not have its hash; nothing was collected"));
    }
    Manifest::decode(&bytes).map(Some).map_err(|e| undecodable(e, &key))
}

/// Says that roots older than the oldest one kept may go.
async fn mark(sweep: &Sweep, io: &RootIo, head: &Head, oldest: &Head) -> Result<()> {
    let Some(root) = oldest.root else { return Ok(()) };
    let Some(parent) = root.parent else { return Ok(()) };
    let depth = root.depth - 1;
    let nonce = Nonce(sweep.random.bytes16());
    let record = SweepRecord { nonce, generation: head.generation, up_to_depth: depth };
    let bytes = record.encode().map_err(|e| Error::internal(format!("encoding a mark: {e}")))?;
    let key = Key::Dropped { uuid: io.record().uuid.0, depth, root: parent.0 };
    match io.store().create_if_absent(&key, Bytes::from(bytes)).await {
        // One that is there says the same.
        Ok(_) => Ok(()),
        Err(error) if error.is_unclear() => match io.store().try_head(&key).await.map_err(stored)? {
            Some(_) => Ok(()),
            None => Err(stored(error)),
        },
        Err(error) => Err(stored(error)),
    }
}

/// Roots that pins name, and with `tags` those that tags name now, with what to call them.
async fn names(io: &RootIo, tags: bool) -> Result<Vec<(String, RootRef)>> {
    let (store, uuid) = (io.store(), io.record().uuid.0);
    let mut out = Vec::new();
    if tags {
        let mut newest: BTreeMap<String, u64> = BTreeMap::new();
        let mut listed = store.list(&Folder::Tags(uuid));
        while let Some(found) = listed.try_next().await.map_err(stored)? {
            if let Key::Tag { tag, n, .. } = found.key {
                let known = newest.entry(tag).or_default();
                *known = n.max(*known);
            }
        }
        for (tag, n) in newest {
            let n = store.newest_after(&Series::Tag(uuid, tag.clone()), n, n + 1).await.map_err(stored)?;
            let key = Key::Tag { uuid, tag: tag.clone(), n };
            let bytes = store.get(&key).await.map_err(stored)?;
            let record = TagRecord::decode(&bytes).map_err(|e| undecodable(e, &key))?;
            out.extend(record.target.map(|target| (format!("tag {tag:?}"), target)));
        }
    }
    let mut listed = store.list(&Folder::Pins(uuid));
    while let Some(found) = listed.try_next().await.map_err(stored)? {
        let Some(bytes) = store.try_get(&found.key).await.map_err(stored)? else { continue };
        let record = PinRecord::decode(&bytes).map_err(|e| undecodable(e, &found.key))?;
        out.push((format!("the pin of fork {}", record.fork), record.target));
    }
    Ok(out)
}

impl Sweep {
    /// Older marks say nothing that the newest ones do not.
    pub(super) async fn forget_marks(&self, io: &RootIo) -> Result<()> {
        let folder = Folder::Dropped(io.record().uuid.0);
        let mut marks: Vec<_> = io.store().list(&folder).try_collect().await.map_err(stored)?;
        marks.sort_by(|a, b| b.key.cmp(&a.key));
        for old in marks.iter().skip(MARKS_KEPT) {
            io.store().delete(&old.key).await.map_err(stored)?;
        }
        Ok(())
    }
}
