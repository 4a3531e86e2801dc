//! A simulated object store: each request travels, is applied at one moment, and its answer travels back. What the caller does
//! meanwhile, dying included, changes nothing of that.
//!
//! It also watches what every process stores: objects of one name have one content, heads of one parent have one root, a
//! head's root is whole (laws 2, 3 and 5).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    Attributes, CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
    UploadPart,
};
use pando_format::{Head, Manifest, RootId, Stored};
use pando_store::{Key, ObjectKind};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::clock::SimClock;
use crate::random::Dice;
use crate::weather::Faults;

/// The store that all processes of a run share. Clones are the same store.
#[derive(Clone)]
pub struct Storage(Arc<Mutex<State>>);

struct State {
    objects: BTreeMap<String, Object>,
    /// Every content that a key of the log, of a batch or of a head ever had at first.
    firsts: BTreeMap<String, Bytes>,
    /// Roots that were tried for a head of a generation, by the root they were built on.
    tried: BTreeMap<(String, Option<RootId>), RootId>,
    faults: Faults,
    dice: Dice,
    clock: SimClock,
    requests: u64,
    trace: blake3::Hasher,
    violations: Vec<String>,
    /// Faults that happened, by name.
    happened: BTreeMap<&'static str, u64>,
    deleted: BTreeSet<String>,
    show: bool,
}

#[derive(Clone)]
struct Object {
    bytes: Bytes,
    modified: SystemTime,
}

/// What becomes of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Served,
    Refused,
    Lost,
    SilentApplied,
    Silent,
    Late,
    Twice,
    Conflict,
    Precondition,
    Cut,
    Flip,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Get,
    Create,
    Put,
    Other,
}

impl Storage {
    /// An empty store.
    pub fn new(faults: Faults, seed: u64, clock: SimClock, show: bool) -> Self {
        Self(Arc::new(Mutex::new(State {
            objects: BTreeMap::new(),
            firsts: BTreeMap::new(),
            tried: BTreeMap::new(),
            faults,
            dice: Dice::new(seed, 2),
            clock,
            requests: 0,
            trace: blake3::Hasher::new(),
            violations: Vec::new(),
            happened: BTreeMap::new(),
            deleted: BTreeSet::new(),
            show,
        })))
    }

    /// The store as process `node` sees it.
    pub fn seen_by(&self, node: usize) -> Arc<dyn ObjectStore> {
        Arc::new(SimStore { storage: self.clone(), node })
    }

    /// No more faults; delays stay.
    pub fn heal(&self) {
        let mut state = self.0.lock();
        state.faults = Faults { delay: state.faults.delay, ..Faults::default() };
    }

    /// What the watch found wrong.
    pub fn violations(&self) -> Vec<String> {
        self.0.lock().violations.clone()
    }

    /// A line of the trace that is not a request.
    pub fn note(&self, line: &str) {
        self.0.lock().line(line);
    }

    /// Requests so far, and a hash of everything that happened.
    pub fn trace(&self) -> (u64, [u8; 32]) {
        let state = self.0.lock();
        (state.requests, *state.trace.finalize().as_bytes())
    }

    /// Faults that happened.
    pub fn happened(&self) -> BTreeMap<&'static str, u64> {
        self.0.lock().happened.clone()
    }

    /// The first content of a key, though the object may be gone by now.
    pub fn first(&self, key: &Key) -> Option<Bytes> {
        self.0.lock().firsts.get(&key.path()).cloned()
    }

    /// Number of objects deleted.
    pub fn deleted(&self) -> usize {
        self.0.lock().deleted.len()
    }

    async fn request<T: Send + 'static>(
        &self,
        node: usize,
        asked: Asked,
        path: &str,
        work: impl Fn(&mut State) -> Result<T> + Send + Sync + 'static,
        damage: impl FnOnce(T, Fate, &Dice) -> T + Send + 'static,
    ) -> Result<T> {
        let (fate, there, back, later, number) = {
            let mut state = self.0.lock();
            let fate = state.fate(asked);
            let (there, back) = (state.delay(), state.delay());
            let later = Duration::from_millis(1 + state.dice.below(state.faults.slowest.max(1_000)));
            state.requests += 1;
            let number = state.requests;
            state.line(&format!("{number} node {node} {asked:?} {path} {fate:?} {there:?} {back:?}"));
            (fate, there, back, later, number)
        };
        let (send, receive) = oneshot::channel();
        let (storage, path) = (self.clone(), path.to_owned());
        // In a task of the network's own: nobody can call a request back.
        tokio::spawn(async move {
            tokio::time::sleep(there).await;
            let apply = || {
                let mut state = storage.0.lock();
                let out = work(&mut state);
                state.line(&format!("{number} applied, {}", if out.is_ok() { "well" } else { "refused" }));
                out
            };
            let refusal = |fate| {
                let (path, source) = (path.clone(), "simulated".into());
                match fate {
                    Fate::Conflict => Error::AlreadyExists { path, source },
                    Fate::Precondition => Error::Precondition { path, source },
                    _ => Error::Generic { store: "simulated", source },
                }
            };
            let answer = match fate {
                Fate::Silent => return silence(send).await,
                Fate::SilentApplied => {
                    let _ = apply();
                    return silence(send).await;
                }
                Fate::Refused | Fate::Late | Fate::Conflict | Fate::Precondition => Err(refusal(fate)),
                Fate::Lost => apply().and(Err(refusal(fate))),
                Fate::Served | Fate::Twice => apply(),
                Fate::Cut | Fate::Flip => {
                    let dice = storage.0.lock().dice.clone();
                    apply().map(|answer| damage(answer, fate, &dice))
                }
            };
            tokio::time::sleep(back).await;
            let _ = send.send(answer);
            if matches!(fate, Fate::Late | Fate::Twice) {
                tokio::time::sleep(later).await;
                let _ = apply();
            }
        });
        receive.await.unwrap_or_else(|_| Err(Error::Generic { store: "simulated", source: "the end".into() }))
    }
}

/// Never answers; ends when nobody waits any more.
async fn silence<T>(mut send: oneshot::Sender<T>) {
    send.closed().await;
}

impl State {
    fn line(&mut self, line: &str) {
        let at = self.clock.elapsed().as_millis();
        // The only name that the engine's own randomness does not make.
        let line = line.split("probe/").next().unwrap_or(line);
        self.trace.update(&at.to_le_bytes());
        self.trace.update(line.as_bytes());
        if self.show {
            eprintln!("{at:>8} {line}");
        }
    }

    fn delay(&mut self) -> Duration {
        let f = &self.faults;
        let ms = match self.dice.chance(f.slow) {
            true => self.dice.below(f.slowest + 1),
            false => self.dice.below(f.delay + 1),
        };
        Duration::from_millis(ms)
    }

    fn fate(&mut self, asked: Asked) -> Fate {
        let f = self.faults.clone();
        let writes = matches!(asked, Asked::Create | Asked::Put);
        let creates = asked == Asked::Create;
        let reads = asked == Asked::Get;
        let only = |holds: bool, n: u32| if holds { n } else { 0 };
        let table = [
            (Fate::Refused, "refused", f.refused),
            (Fate::Lost, "lost", f.lost),
            (Fate::SilentApplied, "silent, applied", f.silent / 2),
            (Fate::Silent, "silent", f.silent / 2),
            (Fate::Late, "late", only(writes, f.late)),
            (Fate::Twice, "twice", only(writes, f.twice)),
            (Fate::Conflict, "conflict", only(creates, f.conflict / 2)),
            (Fate::Precondition, "precondition", only(creates, f.conflict / 2)),
            (Fate::Cut, "cut", only(reads, f.cut)),
            (Fate::Flip, "flip", only(reads, f.flip)),
        ];
        let mut roll = self.dice.below(1000);
        for (fate, name, n) in table {
            if roll < u64::from(n) {
                *self.happened.entry(name).or_default() += 1;
                return fate;
            }
            roll -= u64::from(n);
        }
        Fate::Served
    }

    fn violation(&mut self, what: String) {
        self.line(&format!("VIOLATION {what}"));
        self.violations.push(what);
    }

    fn get(&self, path: &str) -> Result<&Object> {
        self.objects
            .get(path)
            .ok_or_else(|| Error::NotFound { path: path.to_owned(), source: "nothing is there".into() })
    }

    fn write(&mut self, path: &str, bytes: Bytes, create: bool) -> Result<PutResult> {
        let key = Key::parse(path);
        if let Some(Key::Head { .. }) = key {
            self.watch_head(path, &bytes);
        }
        if let Some(old) = self.objects.get(path) {
            if create {
                let source = "an object is there".into();
                return Err(Error::AlreadyExists { path: path.to_owned(), source });
            }
            if old.bytes != bytes {
                self.violation(format!("{path} was overwritten with other bytes"));
            }
        }
        let decides = [ObjectKind::Log, ObjectKind::Head, ObjectKind::Name, ObjectKind::Plan];
        let kind = key.as_ref().map(|key| key.kind());
        if !create && kind.is_some_and(|kind| decides.contains(&kind)) {
            self.violation(format!("{path} was written without the condition that it is absent"));
        }
        if matches!(kind, Some(ObjectKind::Log | ObjectKind::Batch | ObjectKind::Head)) {
            self.firsts.entry(path.to_owned()).or_insert_with(|| bytes.clone());
        }
        let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000) + self.clock.elapsed();
        self.objects.insert(path.to_owned(), Object { bytes, modified });
        Ok(PutResult { e_tag: None, version: None, extensions: Default::default() })
    }

    /// Whoever builds on the same root makes the same root, and it is whole before its head is tried.
    fn watch_head(&mut self, path: &str, bytes: &Bytes) {
        let head = match Head::decode(bytes) {
            Ok(head) => head,
            Err(error) => return self.violation(format!("{path}: {error}")),
        };
        let Some(of) = head.root else { return };
        let tried = (path.to_owned(), of.parent);
        match self.tried.get(&tried) {
            Some(other) if *other != of.root => {
                self.violation(format!("{path}: roots {} and {other} of one parent and plan", of.root));
            }
            Some(_) => {}
            None => drop(self.tried.insert(tried, of.root)),
        }
        let uuid = head.uuid.0;
        let root = Key::Root { uuid, depth: of.depth, hash: of.root.0 }.path();
        if self.objects.contains_key(path) {
            // It decides nothing; its root may have been collected meanwhile.
            return;
        }
        let Some(object) = self.objects.get(&root) else {
            return self.violation(format!("{path}: its root is not stored"));
        };
        let manifest = match Manifest::decode(&object.bytes) {
            Ok(manifest) => manifest,
            Err(error) => return self.violation(format!("{root}: {error}")),
        };
        let packs = manifest.packs.iter().map(|p| (ObjectKind::Pack, p.object));
        let segments = manifest.segments.iter().map(|s| (ObjectKind::Segment, s.object));
        let mut missing = Vec::new();
        for (kind, object) in packs.chain(segments) {
            let (depth, hash) = (object.depth, object.hash.0);
            let key = match kind {
                ObjectKind::Pack => Key::Pack { uuid, depth, hash },
                _ => Key::Segment { uuid, depth, hash },
            };
            if !self.objects.contains_key(&key.path()) {
                missing.push(key.path());
            }
        }
        for key in missing {
            self.violation(format!("{path}: its root needs {key}, which is not stored"));
        }
    }
}

/// The store as one process sees it.
struct SimStore {
    storage: Storage,
    node: usize,
}

impl fmt::Debug for SimStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimStore({})", self.node)
    }
}

impl fmt::Display for SimStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimStore({})", self.node)
    }
}

fn intact<T>(answer: T, _: Fate, _: &Dice) -> T {
    answer
}

fn damage(bytes: Bytes, fate: Fate, dice: &Dice) -> Bytes {
    if bytes.is_empty() {
        return bytes;
    }
    let at = dice.below(bytes.len() as u64) as usize;
    if fate == Fate::Cut {
        return bytes.slice(..at);
    }
    let mut copy = bytes.to_vec();
    copy[at] ^= 1 << dice.below(8);
    copy.into()
}

impl SimStore {
    fn meta(path: &str, object: &Object) -> Result<ObjectMeta> {
        Ok(ObjectMeta {
            location: Path::parse(path)?,
            last_modified: object.modified.into(),
            size: object.bytes.len() as u64,
            e_tag: None,
            version: None,
        })
    }
}

#[async_trait]
impl ObjectStore for SimStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let (path, bytes) = (location.to_string(), Bytes::from(payload));
        let create = options.mode == PutMode::Create;
        let asked = if create { Asked::Create } else { Asked::Put };
        let work = move |state: &mut State| state.write(&path, bytes.clone(), create);
        self.storage.request(self.node, asked, location.as_ref(), work, intact).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let (storage, node, path) = (self.storage.clone(), self.node, location.to_string());
        Ok(Box::new(SimUpload { storage, node, path, parts: Vec::new() }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let (path, head) = (location.to_string(), options.head);
        let asked = if head { Asked::Other } else { Asked::Get };
        let work = move |state: &mut State| {
            let object = state.get(&path)?;
            let meta = SimStore::meta(&path, object)?;
            options.check_preconditions(&meta)?;
            let range = match &options.range {
                None => 0..meta.size,
                Some(range) => range
                    .as_range(meta.size)
                    .map_err(|e| Error::Generic { store: "simulated", source: Box::new(e) })?,
            };
            let bytes = object.bytes.slice(range.start as usize..range.end as usize);
            Ok((meta, range, bytes))
        };
        let damaged = |(meta, range, bytes), fate, dice: &Dice| (meta, range, damage(bytes, fate, dice));
        let (meta, range, bytes) =
            self.storage.request(self.node, asked, location.as_ref(), work, damaged).await?;
        let payload = match head {
            true => stream::empty().boxed(),
            false => stream::once(async { Ok(bytes) }).boxed(),
        };
        Ok(GetResult {
            payload: GetResultPayload::Stream(payload),
            meta,
            range,
            attributes: Attributes::default(),
            extensions: Default::default(),
        })
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let (path, ranges) = (location.to_string(), ranges.to_vec());
        let work = move |state: &mut State| {
            let bytes = &state.get(&path)?.bytes;
            let clip = |at: u64| at.min(bytes.len() as u64) as usize;
            Ok(ranges.iter().map(|r| bytes.slice(clip(r.start)..clip(r.end))).collect::<Vec<_>>())
        };
        let damaged = |mut parts: Vec<Bytes>, fate, dice: &Dice| {
            if let Some(part) = parts.last_mut() {
                *part = damage(part.clone(), fate, dice);
            }
            parts
        };
        self.storage.request(self.node, Asked::Get, location.as_ref(), work, damaged).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let (storage, node) = (self.storage.clone(), self.node);
        locations
            .and_then(move |location| {
                let storage = storage.clone();
                async move {
                    let path = location.to_string();
                    let work = move |state: &mut State| {
                        if state.objects.remove(&path).is_some() {
                            state.deleted.insert(path.clone());
                        }
                        Ok(())
                    };
                    storage.request(node, Asked::Other, location.as_ref(), work, intact).await?;
                    Ok(location)
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (storage, node) = (self.storage.clone(), self.node);
        let prefix = prefix.map(Path::to_string).unwrap_or_default();
        stream::once(async move {
            let start = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
            let work = move |state: &mut State| {
                let listed =
                    state.objects.range(start.clone()..).take_while(|(path, _)| path.starts_with(&start));
                listed.map(|(path, object)| SimStore::meta(path, object)).collect::<Result<Vec<_>>>()
            };
            let listed = storage.request(node, Asked::Other, &prefix, work, intact).await?;
            Ok::<_, Error>(stream::iter(listed.into_iter().map(Ok)))
        })
        .try_flatten()
        .boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let all: Vec<ObjectMeta> = self.list(prefix).try_collect().await?;
        let depth = prefix.map_or(0, |prefix| prefix.parts().count());
        let mut folders = BTreeSet::new();
        let mut objects = Vec::new();
        for meta in all {
            match meta.location.parts().count() == depth + 1 {
                true => objects.push(meta),
                false => drop(folders.insert(Path::from_iter(meta.location.parts().take(depth + 1)))),
            }
        }
        Ok(ListResult {
            common_prefixes: folders.into_iter().collect(),
            objects,
            extensions: Default::default(),
        })
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(Error::NotImplemented { operation: "copy".into(), implementer: self.to_string() })
    }
}

/// An upload in parts: whole at its completion, or not at all.
#[derive(Debug)]
struct SimUpload {
    storage: Storage,
    node: usize,
    path: String,
    parts: Vec<u8>,
}

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Storage")
    }
}

#[async_trait]
impl MultipartUpload for SimUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.parts.extend_from_slice(&Bytes::from(data));
        let (storage, node, path) = (self.storage.clone(), self.node, self.path.clone());
        async move { storage.request(node, Asked::Other, &path, |_| Ok(()), intact).await }.boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let (path, bytes) = (self.path.clone(), Bytes::from(std::mem::take(&mut self.parts)));
        let work = move |state: &mut State| state.write(&path, bytes.clone(), false);
        self.storage.request(self.node, Asked::Put, &self.path, work, intact).await
    }

    async fn abort(&mut self) -> Result<()> {
        Ok(())
    }
}
