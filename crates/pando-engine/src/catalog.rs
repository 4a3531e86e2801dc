//! Collections by name: `names/<name>/<n>` say who owns a name, the newest counts; a record says what a collection is.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use pando_format::{
    Closing, CollectionConfig, CollectionRecord, CollectionUuid, Head, NameRecord, Stored,
    check_collection_name,
};
use pando_store::{CreateOutcome, Key, Series};
use parking_lot::RwLock;
use uuid::Uuid;

use crate::api::CreateCollection;
use crate::collection::Collection;
use crate::environment::Environment;
use crate::error::{Error, ErrorKind, Result};
use crate::log::{Write, newest_head};
use crate::rootio::{damaged_at, stored, undecodable};

/// Dimensions up to this are indexed.
const MAX_DIMENSION: u32 = pando_format::MAX_DIMENSION;
/// Tries of a create whose answers are unclear.
const CREATE_ATTEMPTS: usize = 5;

/// Open collections of this node.
pub struct Catalog {
    env: Environment,
    /// In order of their names: what is done with all of them is done in the same order in every process.
    open: RwLock<BTreeMap<String, Arc<Collection>>>,
    /// One opening of a collection at a time: two views of one collection must not both write.
    opening: tokio::sync::Mutex<()>,
}

/// Who owns a name, and the number of the object that says so.
struct Owner {
    number: u64,
    uuid: Option<CollectionUuid>,
}

impl Catalog {
    /// A catalogue with nothing open.
    pub fn new(env: Environment) -> Self {
        Self { env, open: RwLock::new(BTreeMap::new()), opening: tokio::sync::Mutex::new(()) }
    }

    /// The collection that owns `name`, opened.
    pub async fn get(&self, name: &str) -> Result<Arc<Collection>> {
        if let Some(collection) = self.open_now(name) {
            return Ok(collection);
        }
        check_name(name)?;
        if self.env.tasks.stopped() {
            return Err(shutting_down());
        }
        let _guard = self.opening.lock().await;
        if let Some(collection) = self.open_now(name) {
            return Ok(collection);
        }
        let unknown =
            || Error::not_found("COLLECTION_NOT_FOUND", format!("there is no collection named {name:?}"));
        let owner = self.owner(name).await?;
        let record = self.record(owner.uuid.ok_or_else(unknown)?.0).await?;
        let collection = Collection::open(&self.env, record).await?;
        if collection.is_closed() {
            // A deletion that is under way elsewhere, or that ended in the middle: its other half is done here.
            self.release(name, &collection).await?;
            return Err(unknown());
        }
        self.open.write().insert(name.to_owned(), collection.clone());
        Ok(collection)
    }

    fn open_now(&self, name: &str) -> Option<Arc<Collection>> {
        let open = self.open.read().get(name).cloned()?;
        (!open.is_closed()).then_some(open)
    }

    /// Collections that are open now.
    pub fn all_open(&self) -> Vec<Arc<Collection>> {
        self.open.read().values().cloned().collect()
    }

    /// Names of collections that are not open and whose log goes past their newest head: nobody compacts them unless they
    /// are opened.
    pub async fn dirty_unopened(&self) -> Result<Vec<String>> {
        let mut dirty = Vec::new();
        for name in self.list().await? {
            if self.open.read().contains_key(&name) {
                continue;
            }
            let Some(uuid) = self.owner(&name).await?.uuid else { continue };
            let head = newest_head(&self.env.store, uuid.0, 0).await?;
            if head.as_ref().is_some_and(|head| head.closed.is_some()) {
                continue;
            }
            let covered = head.map_or(0, |head| head.sequence);
            let next = Key::Log { uuid: uuid.0, sequence: covered + 1 };
            if self.env.store.try_head(&next).await.map_err(stored)?.is_some() {
                dirty.push(name);
            }
        }
        Ok(dirty)
    }

    /// Forgets every open collection.
    pub fn clear(&self) {
        self.open.write().clear();
    }

    /// Closes what nobody used since `before` (seconds of the clock) and nobody holds.
    pub fn drop_idle(&self, before: u64) {
        self.open.write().retain(|_, collection| {
            let used = collection.last_used.load(std::sync::atomic::Ordering::Relaxed) >= before;
            let view = collection.view();
            let backlog = view.tail.facts().sequence > view.tail.base().sequence;
            used || backlog || Arc::strong_count(collection) > 1
        });
    }

    async fn owner(&self, name: &str) -> Result<Owner> {
        let number = self.env.store.newest(&Series::Name(name.to_owned()), 1).await.map_err(stored)?;
        if number == 0 {
            return Ok(Owner { number, uuid: None });
        }
        let key = Key::Name { name: name.to_owned(), n: number };
        let bytes = self.env.store.get(&key).await.map_err(stored)?;
        let record = NameRecord::decode(&bytes).map_err(|e| undecodable(e, &key))?;
        Ok(Owner { number, uuid: record.owner })
    }

    /// The record of a collection, open or not.
    pub async fn record(&self, uuid: Uuid) -> Result<CollectionRecord> {
        let key = Key::Record { uuid };
        let bytes = self.env.store.get(&key).await.map_err(stored)?;
        CollectionRecord::decode(&bytes).map_err(|e| undecodable(e, &key))
    }

    /// Whether the collection's log is closed: its name is free again.
    async fn is_closed(&self, uuid: CollectionUuid) -> Result<bool> {
        if newest_head(&self.env.store, uuid.0, 0).await?.is_some_and(|head| head.closed.is_some()) {
            return Ok(true);
        }
        let open = self.all_open().into_iter().find(|c| c.record.uuid == uuid);
        let collection = match open {
            Some(collection) => collection,
            None => Collection::open(&self.env, self.record(uuid.0).await?).await?,
        };
        collection.probe_end().await?;
        Ok(collection.is_closed())
    }

    /// Creates a collection and gives it the name: record first, then the name by create-if-absent. Who loses the race
    /// for the name leaves a record that nothing refers to.
    pub async fn create(&self, create: &CreateCollection) -> Result<Arc<Collection>> {
        check_name(&create.name)?;
        let taken = || {
            let message = format!("there is already a collection named {:?}", create.name);
            Error::new(ErrorKind::AlreadyExists, "COLLECTION_EXISTS", message)
        };
        let config = config(create)?;
        let uuid = CollectionUuid(Uuid::from_bytes(uuid_bytes(self.env.random.bytes16())));
        let mut recorded = false;
        loop {
            let owner = self.owner(&create.name).await?;
            if owner.uuid == Some(uuid) {
                // An attempt of this very call, which came into effect after it was looked for.
                self.open.write().remove(&create.name);
                return self.get(&create.name).await;
            }
            if let Some(owner) = owner.uuid
                && !self.is_closed(owner).await?
            {
                return Err(taken());
            }
            if !recorded {
                let record = CollectionRecord {
                    uuid,
                    name: create.name.clone(),
                    config: config.clone(),
                    lineage: Vec::new(),
                    forked: None,
                    shards: 1,
                };
                let bytes = Bytes::from(record.encode().map_err(Error::from)?);
                self.create_own(&Key::Record { uuid: uuid.0 }, bytes).await?;
                recorded = true;
            }
            if self.take_name(&create.name, owner.number + 1, Some(uuid)).await? {
                self.open.write().remove(&create.name);
                return self.get(&create.name).await;
            }
        }
    }

    /// Creates an object that nobody else would create. An answer that does not say "created" is looked into: 409 and 412 may
    /// come without anything being there.
    async fn create_own(&self, key: &Key, bytes: Bytes) -> Result<()> {
        for _ in 0..CREATE_ATTEMPTS {
            match self.env.store.create_if_absent(key, bytes.clone()).await {
                Ok(CreateOutcome::Created) => return Ok(()),
                Ok(CreateOutcome::Exists) => {}
                Err(error) if error.is_unclear() => {}
                Err(error) => return Err(stored(error)),
            }
            match self.env.store.try_get(key).await.map_err(stored)? {
                Some(found) if found == bytes => return Ok(()),
                Some(_) => return Err(damaged_at(format!("{}: it is another's", key.kind().label()), key)),
                None => {}
            }
        }
        Err(not_taken())
    }

    /// Writes name object `number`. `false`: somebody else's is there.
    async fn take_name(&self, name: &str, number: u64, owner: Option<CollectionUuid>) -> Result<bool> {
        let record = NameRecord { name: name.to_owned(), number, owner };
        let bytes = Bytes::from(record.encode().map_err(Error::from)?);
        let key = Key::Name { name: name.to_owned(), n: number };
        match self.env.store.create_if_absent(&key, bytes).await {
            Ok(CreateOutcome::Created) => return Ok(true),
            Ok(CreateOutcome::Exists) => {}
            Err(error) if error.is_unclear() => {}
            Err(error) => return Err(stored(error)),
        }
        let Some(bytes) = self.env.store.try_get(&key).await.map_err(stored)? else { return Ok(false) };
        let found = NameRecord::decode(&bytes).map_err(|e| undecodable(e, &key))?;
        Ok(found.owner == owner && owner.is_some())
    }

    /// Closes the log, writes the last head, and frees the name.
    pub async fn delete(&self, name: &str) -> Result<()> {
        let collection = loop {
            let collection = self.get(name).await?;
            match collection.write(Write::Close, None).await {
                Ok(_) => break collection,
                // It was closed elsewhere since it was opened here: the name may be another's.
                Err(_) if collection.is_closed() => {}
                Err(error) => return Err(error),
            }
        };
        let _compacting = collection.compacting.lock().await;
        self.release(name, &collection).await?;
        self.open.write().retain(|_, open| !Arc::ptr_eq(open, &collection));
        Ok(())
    }

    /// What follows the closing of a log: a last head that says so, and the name is free. Repeating it is harmless.
    async fn release(&self, name: &str, collection: &Collection) -> Result<()> {
        self.close_heads(collection).await?;
        for _ in 0..CREATE_ATTEMPTS {
            let owner = self.owner(name).await?;
            // A race with somebody who frees or takes the name for himself is lost gladly: the collection is closed.
            if owner.uuid != Some(collection.record.uuid)
                || self.take_name(name, owner.number + 1, None).await?
            {
                return Ok(());
            }
        }
        Err(not_taken())
    }

    /// The last head says closed, so that nobody has to read the log to know it.
    async fn close_heads(&self, collection: &Collection) -> Result<()> {
        let uuid = collection.record.uuid;
        loop {
            let newest = newest_head(&self.env.store, uuid.0, collection.view().generation).await?;
            if newest.as_ref().is_some_and(|head| head.closed.is_some()) {
                return Ok(());
            }
            let closed = Some(Closing { successor: None });
            let generation = newest.as_ref().map_or(1, |head| head.generation + 1);
            let head = match newest {
                Some(head) => Head { generation, closed, ..head },
                None => Head {
                    uuid,
                    generation,
                    root: None,
                    sequence: 0,
                    log_floor: 0,
                    next_row: 0,
                    cumulative_rows: 0,
                    cumulative_bytes: 0,
                    closed,
                },
            };
            let bytes = Bytes::from(head.encode().map_err(Error::from)?);
            let key = Key::Head { uuid: uuid.0, generation };
            if self.env.store.create_if_absent(&key, bytes).await.map_err(stored)? == CreateOutcome::Created {
                return Ok(());
            }
        }
    }

    /// Names that have an owner, sorted.
    pub async fn list(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for name in self.env.store.list_names().await.map_err(stored)? {
            if self.owner(&name).await?.uuid.is_some() {
                names.push(name);
            }
        }
        Ok(names)
    }
}

/// Storage keeps refusing to create an object, without a reason that could be found.
fn not_taken() -> Error {
    Error::new(ErrorKind::Unavailable, "STORAGE_UNAVAILABLE", "storage did not take the object; try again")
}

/// The engine stops.
pub fn shutting_down() -> Error {
    Error::new(ErrorKind::Unavailable, "SHUTTING_DOWN", "the server is shutting down")
}

/// Refuses names that cannot be a collection's.
pub fn check_name(name: &str) -> Result<()> {
    check_collection_name(name).map_err(|error| {
        let message = format!("{}; a collection name is [a-z0-9][a-z0-9._-]{{0,127}}", error.what);
        Error::invalid("INVALID_COLLECTION_NAME", message)
    })
}

fn config(create: &CreateCollection) -> Result<CollectionConfig> {
    if !(1..=MAX_DIMENSION).contains(&create.dimension) {
        let message = format!("the dimension is {}, it must be 1 to {MAX_DIMENSION}", create.dimension);
        return Err(Error::invalid("INVALID_DIMENSION", message));
    }
    if !(1..=2).contains(&create.copies) {
        return Err(Error::invalid(
            "INVALID_COPIES",
            format!("copies is {}, it must be 1 or 2", create.copies),
        ));
    }
    Ok(CollectionConfig {
        dim: create.dimension,
        metric: create.metric,
        copies: create.copies,
        refine: create.refine,
        seed: create.seed,
        small_limit: create.small_limit,
        log_retention_seconds: create.log_retention.as_secs(),
    })
}

/// Random bytes as a version 4 uuid.
fn uuid_bytes(mut bytes: [u8; 16]) -> [u8; 16] {
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    bytes
}
