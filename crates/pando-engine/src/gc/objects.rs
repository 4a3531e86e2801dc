//! Manifests, segments, packs and plans that no kept root reaches.

use futures::TryStreamExt;
use pando_store::{ErrorKind, Folder, Key, ObjectKind};

use super::held::Held;
use super::report::Tally;
use super::{Sweep, rules};
use crate::error::{Error, Result};
use crate::rootio::{RootIo, stored};

/// Deletes in flight.
pub const IN_FLIGHT: usize = 8;

/// What became of a delete.
#[derive(Clone, Copy, Debug)]
pub enum Gone {
    /// It is not there any more (or would not be: a dry run).
    Deleted(ObjectKind, u64),
    /// Storage gave no clear answer: it may still be there.
    Failed(ObjectKind, u64),
}

impl Gone {
    /// Into the counts.
    pub fn count(self, tally: &mut Tally) {
        match self {
            Self::Deleted(kind, bytes) => tally.deleted(kind, bytes),
            Self::Failed(kind, bytes) => {
                tally.kept(kind, bytes);
                tally.failed += 1;
            }
        }
    }
}

impl Sweep {
    /// Deletes one object. That storage does not answer is no reason to stop: the next sweep finds what is left.
    pub(super) async fn remove(&self, io: &RootIo, key: Key, size: u64) -> Result<Gone> {
        let kind = key.kind();
        if self.dry_run {
            return Ok(Gone::Deleted(kind, size));
        }
        match io.store().delete(&key).await {
            Ok(()) => Ok(Gone::Deleted(kind, size)),
            Err(error) if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unclear) => {
                tracing::warn!(%key, ?error, "a piece of garbage stays for the next sweep");
                Ok(Gone::Failed(kind, size))
            }
            Err(error) => Err(stored(error)),
        }
    }

    /// Deletes what is not held and not too deep.
    pub(super) async fn objects(
        &self,
        io: &RootIo,
        held: &Held,
        up_to_depth: u64,
        tally: &mut Tally,
    ) -> Result<()> {
        let uuid = io.record().uuid.0;
        let failed = tally.failed;
        self.folder(io, Folder::Roots(uuid), held, up_to_depth, tally).await?;
        if tally.failed > failed {
            // A root goes as a whole: while its manifest is there, so is what it reaches.
            let message = "storage does not answer; some garbage was collected, the next sweep goes on";
            return Err(Error::new(crate::error::ErrorKind::Unavailable, "STORAGE_UNAVAILABLE", message));
        }
        for folder in [Folder::Segments(uuid), Folder::Packs(uuid), Folder::Plans(uuid)] {
            self.folder(io, folder, held, up_to_depth, tally).await?;
        }
        Ok(())
    }

    async fn folder(
        &self,
        io: &RootIo,
        folder: Folder,
        held: &Held,
        up_to_depth: u64,
        tally: &mut Tally,
    ) -> Result<()> {
        let stage = format!("{}s", folder.kind().label());
        let mut listed = io.store().list(&folder);
        let mut waiting = Vec::with_capacity(IN_FLIGHT);
        let mut count = 0;
        loop {
            let found = listed.try_next().await.map_err(stored)?;
            let end = found.is_none();
            if let Some(found) = found {
                count += 1;
                let depth = match found.key {
                    Key::Root { depth, .. }
                    | Key::Segment { depth, .. }
                    | Key::Pack { depth, .. }
                    | Key::Plan { depth, .. } => depth,
                    _ => continue,
                };
                if rules::may_delete(depth, up_to_depth, held.has(&found.key)) {
                    waiting.push(self.remove(io, found.key, found.size));
                } else {
                    tally.kept(found.key.kind(), found.size);
                }
            }
            if waiting.len() == IN_FLIGHT || end {
                for gone in futures::future::join_all(waiting.drain(..)).await {
                    gone?.count(tally);
                }
                self.report(&stage, count);
            }
            if end {
                return Ok(());
            }
        }
    }
}
