//! Proof, at start-up, that the store's create is exclusive. Everything in DESIGN section 4 rests on it.

use std::time::SystemTime;

use bytes::Bytes;
use uuid::Uuid;

use crate::error::{ErrorKind, StoreError};
use crate::keys::{Key, ObjectKind};
use crate::{CreateOutcome, Result, Store};

/// Attempts at a fresh key when an answer was unclear.
const TRIES: usize = 3;

impl Store {
    /// Creates an object twice and looks: the second create must say that it exists and must not touch it, and the
    /// first must be readable at once. [`ErrorKind::Unsupported`] for a store that does not honour this.
    ///
    /// An answer that was lost proves nothing, so the probe is repeated with another key; a store that keeps
    /// losing answers is [`ErrorKind::Unavailable`].
    pub async fn probe(&self) -> Result<()> {
        let mut last = None;
        for _ in 0..TRIES {
            let key = Key::Probe { nonce: *Uuid::new_v4().as_bytes() };
            let outcome = self.probe_once(&key).await;
            if let Err(e) = self.delete(&key).await {
                // Not a reason to refuse the store: the roles that never collect garbage may lack the right.
                tracing::warn!(%key, error = ?e, "the probe's object stays behind");
            }
            match outcome {
                Err(e) if e.is_unclear() => last = Some(e),
                done => return done,
            }
        }
        let detail = last.map_or_else(String::new, |e| e.internal().to_owned());
        Err(StoreError::new(ErrorKind::Unavailable, ObjectKind::Probe, detail))
    }

    /// The time by the store's own clock: when an object just written was last modified. Ages of other objects are
    /// reckoned from it, whatever this machine's clock shows.
    pub async fn time(&self) -> Result<SystemTime> {
        let key = Key::Probe { nonce: *Uuid::new_v4().as_bytes() };
        // A fresh key: written twice, it is the same object with a later time.
        let written = self.put_content_addressed(&key, Bytes::from_static(b"pando: the time")).await;
        let time = match written {
            Ok(_) => self.head(&key).await.map(|info| info.last_modified),
            Err(error) => Err(error),
        };
        if let Err(error) = self.delete(&key).await {
            tracing::warn!(%key, ?error, "an object that tells the time stays behind");
        }
        time
    }

    async fn probe_once(&self, key: &Key) -> Result<()> {
        let refuse = |why: &str| Err(StoreError::new(ErrorKind::Unsupported, ObjectKind::Probe, why));
        let first = Bytes::from_static(b"pando probe: the first create");
        let second = Bytes::from_static(b"pando probe: the second create, which must not be seen");
        match self.create_if_absent(key, first.clone()).await? {
            CreateOutcome::Created => {}
            // A fresh random key cannot be taken: either our own create was applied and then repeated by the
            // backend, or the store answers without looking. The next key tells them apart.
            CreateOutcome::Exists => {
                return Err(StoreError::new(ErrorKind::Unclear, ObjectKind::Probe, "a fresh key is taken"));
            }
        }
        if self.create_if_absent(key, second).await? == CreateOutcome::Created {
            return refuse("a second create of the same key succeeded");
        }
        match self.try_get(key).await? {
            Some(bytes) if bytes == first => Ok(()),
            Some(_) => refuse("a refused create changed the object"),
            None => refuse("an object that was created cannot be read"),
        }
    }
}
