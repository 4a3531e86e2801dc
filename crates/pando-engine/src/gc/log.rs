//! Entries of the log at or below the floor, and bodies that no entry holds.

use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt};
use pando_format::{BodyPlace, Entry, MAX_AIM_DISTANCE, Stored};
use pando_store::{Folder, Key, ObjectKind};

use super::Sweep;
use super::objects::{Gone, IN_FLIGHT};
use super::report::Tally;
use crate::error::Result;
use crate::log::belief::{HeadFacts, may_delete_entry, may_delete_orphan};
use crate::rootio::{RootIo, stored};

/// Bodies by the log's end when they were written and by nonce, with their lengths.
type Bodies = BTreeMap<(u64, [u8; 16]), u64>;

impl Sweep {
    /// Deletes entries that the floor passed, each after its bodies, and bodies that no entry can hold any more.
    pub(super) async fn log(&self, io: &RootIo, published: HeadFacts, tally: &mut Tally) -> Result<()> {
        let (store, uuid) = (io.store(), io.record().uuid.0);
        let mut bodies = Bodies::new();
        let mut listed = store.list(&Folder::Batches(uuid));
        while let Some(found) = listed.try_next().await.map_err(stored)? {
            if let Key::Batch { aim, nonce, .. } = found.key {
                bodies.insert((aim, nonce), found.size);
            }
        }
        let mut entries: Vec<(u64, u64)> = Vec::new();
        let mut listed = store.list(&Folder::Log(uuid));
        while let Some(found) = listed.try_next().await.map_err(stored)? {
            let Key::Log { sequence, .. } = found.key else { continue };
            if may_delete_entry(sequence, published) {
                entries.push((sequence, found.size));
            } else {
                tally.kept(ObjectKind::Log, found.size);
            }
        }
        entries.sort_unstable();
        let shared = &bodies;
        let work = entries.into_iter().map(|(sequence, size)| self.entry(io, sequence, size, shared));
        let mut done = futures::stream::iter(work).buffer_unordered(IN_FLIGHT);
        let mut gone_bodies: Vec<(u64, [u8; 16])> = Vec::new();
        let mut count = 0;
        while let Some(outcome) = done.next().await {
            let (of_entry, gone) = outcome?;
            gone_bodies.extend(of_entry);
            gone.count(tally);
            count += 1;
            self.report("the log", count);
        }
        drop(done);
        for body in gone_bodies {
            if let Some(size) = bodies.remove(&body) {
                tally.deleted(ObjectKind::Batch, size);
            }
        }
        for ((aim, nonce), size) in bodies {
            if may_delete_orphan(aim, MAX_AIM_DISTANCE, published) {
                self.remove(io, Key::Batch { uuid, aim, nonce }, size).await?.count(tally);
            } else {
                tally.kept(ObjectKind::Batch, size);
            }
        }
        Ok(())
    }

    /// Deletes one entry and the bodies that it holds, the bodies first: without the entry nobody would know whose they are.
    async fn entry(
        &self,
        io: &RootIo,
        sequence: u64,
        size: u64,
        bodies: &Bodies,
    ) -> Result<(Vec<(u64, [u8; 16])>, Gone)> {
        let (store, uuid) = (io.store(), io.record().uuid.0);
        let key = Key::Log { uuid, sequence };
        let mut gone = Vec::new();
        let nearest = sequence.saturating_sub(MAX_AIM_DISTANCE);
        if bodies.range((nearest, [0; 16])..(sequence, [0; 16])).next().is_some()
            && let Some(bytes) = store.try_get(&key).await.map_err(stored)?
            // An entry that cannot be read was stepped over; its bodies go with the orphans.
            && let Ok(entry) = Entry::decode(&bytes)
        {
            for body in &entry.bodies {
                let BodyPlace::External(name) = &body.place else { continue };
                let place = (name.aim, name.nonce.0);
                let Some(size) = bodies.get(&place) else { continue };
                let key = Key::Batch { uuid, aim: name.aim, nonce: name.nonce.0 };
                match self.remove(io, key, *size).await? {
                    Gone::Deleted(..) => gone.push(place),
                    failed @ Gone::Failed(..) => return Ok((gone, failed)),
                }
            }
        }
        Ok((gone, self.remove(io, key, size).await?))
    }
}
