//! Collection of garbage: what is kept, what goes, and that neither crashes, faults, late sweeps, checkpoints in flight nor
//! sleeping writers make it delete what somebody needs. Time is the store's own, moved by the test.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use object_store::ObjectStore;
use object_store::memory::InMemory;
use pando_engine::api::*;
use pando_engine::rootio::RootIo;
use pando_engine::{Engine, ErrorKind, Settings};
use pando_format::{
    CollectionRecord, CollectionUuid, Head, Nonce, PinRecord, RootRef, Stored, SweepRecord, TagRecord,
};
use pando_store::{Folder, Key, ObjectKind, Store};
use pando_testkit::{Failure, Fault, FaultOp, Faults, Gate, RandomFaults, Rule, Timed};
use uuid::Uuid;

use crate::checks::*;
use crate::support::*;

const DIM: usize = 12;
const MINUTE: Duration = Duration::from_secs(60);

/// A store with a clock of its own and faults, an engine on it, and a history.
struct Grove {
    memory: Arc<InMemory>,
    timed: Timed,
    faults: Faults,
    objects: Arc<dyn ObjectStore>,
    engine: Arc<Engine>,
    uuid: Uuid,
    model: Model,
    generator: Generator,
    /// Roots in order, with what they should hold.
    roots: Vec<(RootId, Model)>,
    next: u64,
}

fn settings() -> Settings {
    Settings { cache_memory: 0, ..by_hand() }
}

impl Grove {
    async fn plant(small_limit: u64) -> Self {
        Self::plant_with(small_limit, settings()).await
    }

    async fn plant_with(small_limit: u64, settings: Settings) -> Self {
        let (memory, timed, faults) = (Arc::new(InMemory::new()), Timed::new(), Faults::new());
        let objects = faults.wrap(timed.wrap(memory.clone()));
        let engine = join(&objects, settings).await;
        let create = CreateCollection { small_limit, ..CreateCollection::new("c", DIM as u32, Metric::L2) };
        engine.create_collection(create).await.unwrap();
        let uuid = engine.describe("c").await.unwrap().uuid;
        let (model, generator) = (Model::default(), Generator(77));
        let roots = Vec::new();
        Self { memory, timed, faults, objects, engine, uuid, model, generator, roots, next: 0 }
    }

    fn store(&self) -> Store {
        Store::new(self.objects.clone(), "", None, hasty()).unwrap()
    }

    fn io(&self, record: CollectionRecord) -> RootIo {
        RootIo::new(self.store(), Arc::new(record))
    }

    async fn record(&self) -> CollectionRecord {
        CollectionRecord::decode(&self.store().get(&Key::Record { uuid: self.uuid }).await.unwrap()).unwrap()
    }

    /// New rows, replaced rows, deleted rows.
    async fn write(&mut self, new: u64) {
        let mut batch: Vec<(RecordId, Vec<f32>)> = Vec::new();
        for id in self.next..self.next + new {
            batch.push((RecordId::U64(id), self.generator.vector(DIM)));
        }
        for _ in 0..new / 2 * u64::from(self.next > 0) {
            batch.push((RecordId::U64(self.generator.below(self.next)), self.generator.vector(DIM)));
        }
        self.next += new;
        self.engine.upsert("c", rows(DIM, &batch), None).await.unwrap();
        self.model.0.extend(batch);
        let gone: Vec<_> = (0..new / 4).map(|_| RecordId::U64(self.generator.below(self.next))).collect();
        self.engine.delete_ids("c", gone.clone(), None).await.unwrap();
        gone.iter().for_each(|id| drop(self.model.0.remove(id)));
    }

    async fn compact(&mut self) -> RootId {
        let root = self.engine.compact("c", quiet()).await.unwrap().root.unwrap();
        self.roots.push((root, self.model.clone()));
        root
    }

    /// So many rounds of writes and a checkpoint, so far apart.
    async fn rounds(&mut self, rounds: usize, apart: Duration) {
        for _ in 0..rounds {
            self.write(60).await;
            self.compact().await;
            self.timed.advance(apart);
        }
    }

    async fn collect(&self) -> GarbageReport {
        self.engine.collect_garbage("c", false, quiet()).await.unwrap()
    }

    /// Keys and sizes of the collection's objects.
    async fn listing(&self) -> BTreeMap<Key, u64> {
        let store = Store::new(self.memory.clone(), "", None, hasty()).unwrap();
        let all: Vec<_> = store.list(&Folder::Collection(self.uuid)).try_collect().await.unwrap();
        all.into_iter().map(|found| (found.key, found.size)).collect()
    }

    /// Roots from number `from` on read as they should, those before are gone.
    async fn kept_from(&self, from: usize) {
        // A node that has none of these roots open.
        let engine = join(&self.objects, settings()).await;
        let checker = Checker::new(&engine, "c", Metric::L2);
        for (at, (root, model)) in self.roots.iter().enumerate() {
            let checker = checker.at(*root);
            if at >= from {
                checker.records(model, &[]).await;
                checker.verified(model).await;
            } else {
                let error = engine.count("c", Consistency::Strong, At::Root(*root)).await.expect_err("gone");
                assert_eq!(
                    (error.kind, error.reason),
                    (ErrorKind::FailedPrecondition, "ROOT_EXPIRED"),
                    "{at}"
                );
            }
        }
        checker.records(&self.model, &[]).await;
        let query: Vec<_> = (0..3).map(|i| Generator(i).vector(DIM)).collect();
        checker.searches(&self.model, &query, 10).await;
    }

    /// What lies in storage is what the last `kept` roots reach, the log past the floor, and what is never deleted.
    async fn nothing_else(&self, kept: usize) {
        let io = self.io(self.record().await);
        let listed = self.engine.list_roots("c").await.unwrap();
        let mut reached = BTreeSet::new();
        for root in listed.iter().take(kept) {
            reached.insert(io.root_key(root.depth, &root.root));
            let (manifest, _) = io.manifest(root.depth, &root.root).await.unwrap();
            reached.extend(manifest.packs.iter().map(|pack| io.pack_key(&pack.object)));
            reached.extend(manifest.segments.iter().map(|segment| io.segment_key(&segment.object)));
        }
        let floor = self.newest_head().await.log_floor;
        for key in self.listing().await.into_keys() {
            let fine = match &key {
                Key::Root { .. } | Key::Pack { .. } | Key::Segment { .. } => reached.remove(&key),
                Key::Log { sequence, .. } => *sequence > floor,
                Key::Plan { depth, .. } => listed.iter().take(kept).any(|root| root.depth == *depth),
                _ => true,
            };
            assert!(fine, "{key} is garbage");
        }
        assert!(reached.is_empty(), "missing: {reached:?}");
    }

    async fn newest_head(&self) -> Head {
        let heads = self.listing().await.into_keys().filter(|key| matches!(key, Key::Head { .. })).max();
        Head::decode(&self.store().get(&heads.unwrap()).await.unwrap()).unwrap()
    }
}

fn of(report: &GarbageReport, kind: ObjectKind) -> GarbageOfKind {
    let none = GarbageOfKind { kind, deleted: 0, deleted_bytes: 0, kept: 0, kept_bytes: 0 };
    report.kinds.iter().find(|k| k.kind == kind).copied().unwrap_or(none)
}

/// Roots live for an hour after they were replaced; a dry run says exactly what a sweep does and does nothing.
#[tokio::test(flavor = "multi_thread")]
async fn roots_are_kept_for_their_retention() {
    for small_limit in [100, 100_000] {
        let mut grove = Grove::plant(small_limit).await;
        assert_eq!(grove.collect().await, GarbageReport::default(), "nothing is there yet");
        grove.rounds(10, 10 * MINUTE).await;
        // Published at 0, 10, … 90 minutes; it is 100. What was replaced at 40 or before is old: the first four.
        let before = grove.listing().await;
        let dry = grove.engine.collect_garbage("c", true, quiet()).await.unwrap();
        assert_eq!(grove.listing().await, before, "a dry run deletes nothing");
        let report = grove.collect().await;
        assert_eq!(GarbageReport { dry_run: false, ..dry }, report);
        assert_eq!((report.recent_roots, report.held_roots, report.failed), (6, 0, 0));
        assert_eq!(of(&report, ObjectKind::Root).deleted, 4);
        let after = grove.listing().await;
        let gone: Vec<u64> =
            before.iter().filter(|(key, _)| !after.contains_key(key)).map(|(_, n)| *n).collect();
        assert_eq!(report.deleted(), (gone.len() as u64, gone.iter().sum()));
        grove.kept_from(4).await;
        grove.nothing_else(6).await;
        assert_eq!(grove.collect().await.deleted(), (0, 0), "twice is once");
        // Nobody writes any more: all but the newest root goes.
        grove.timed.advance(61 * MINUTE);
        assert_eq!(grove.collect().await.recent_roots, 1);
        grove.kept_from(9).await;
        grove.nothing_else(1).await;
        // And life goes on.
        grove.rounds(2, MINUTE).await;
        grove.kept_from(9).await;
        let other = join(&grove.objects, settings()).await;
        Checker::new(&other, "c", Metric::L2).records(&grove.model, &[]).await;
    }
}

/// Entries go when the floor passed them, never before their head is as old as the retention; bodies go with them. An idle
/// collection gets a head for it.
#[tokio::test(flavor = "multi_thread")]
async fn the_log_follows_the_floor() {
    let mut grove = Grove::plant(100).await;
    let entries = |listing: &BTreeMap<Key, u64>| -> (Vec<u64>, usize) {
        let log = listing
            .keys()
            .filter_map(|key| if let Key::Log { sequence, .. } = key { Some(*sequence) } else { None });
        (log.collect(), listing.keys().filter(|key| matches!(key, Key::Batch { .. })).count())
    };
    grove.write(7000).await; // Its body lies apart.
    grove.compact().await;
    assert_eq!(entries(&grove.listing().await), (vec![1, 2], 1));
    grove.timed.advance(59 * MINUTE);
    grove.write(10).await;
    grove.compact().await;
    grove.collect().await;
    assert_eq!(grove.newest_head().await.log_floor, 0, "a minute too early");
    assert_eq!(entries(&grove.listing().await), (vec![1, 2, 3, 4], 1));
    grove.timed.advance(MINUTE);
    grove.write(10).await;
    grove.compact().await;
    let head = grove.newest_head().await;
    assert_eq!((head.log_floor, head.sequence), (2, 6), "the first head is an hour old");
    grove.collect().await;
    assert_eq!(entries(&grove.listing().await), (vec![3, 4, 5, 6], 0));
    // Orphans: one that an entry may still hold, one that none can.
    let store = grove.store();
    for aim in [0, 4] {
        let key = Key::Batch { uuid: grove.uuid, aim, nonce: [9; 16] };
        store.put_content_addressed(&key, bytes::Bytes::from_static(b"orphan")).await.unwrap();
    }
    grove.collect().await;
    assert_eq!(entries(&grove.listing().await).1, 2, "an entry up to 1024 may hold them");
    grove.timed.advance(59 * MINUTE);
    grove.collect().await;
    assert_eq!(grove.newest_head().await.log_floor, 2);
    // Idle for the retention: the floor rises without a checkpoint, and reads and writes go on.
    grove.timed.advance(MINUTE);
    let generation = grove.newest_head().await.generation;
    grove.collect().await;
    let head = grove.newest_head().await;
    assert_eq!((head.generation, head.log_floor, head.sequence), (generation + 1, 6, 6));
    assert_eq!(entries(&grove.listing().await).0, Vec::<u64>::new());
    let roots = grove.engine.list_roots("c").await.unwrap();
    assert_eq!(roots.iter().map(|root| root.depth).collect::<Vec<_>>(), [3, 2, 1], "each root once");
    grove.collect().await;
    assert_eq!(grove.newest_head().await.generation, generation + 1, "once is enough");
    for _ in 0..2 {
        let other = join(&grove.objects, settings()).await;
        Checker::new(&other, "c", Metric::L2).records(&grove.model, &[]).await;
        grove.write(20).await;
        grove.compact().await;
    }
    grove.kept_from(2).await;
    // The orphan that no entry can hold any more.
    for _ in 0..1040 {
        grove.engine.delete_ids("c", vec![RecordId::U64(1 << 40)], None).await.unwrap();
    }
    grove.compact().await;
    grove.timed.advance(60 * MINUTE);
    grove.collect().await;
    assert_eq!(entries(&grove.listing().await), (vec![], 0));
}

/// An idle collection whose tail is not empty gets no head for its floor: the next checkpoint states it.
#[tokio::test(flavor = "multi_thread")]
async fn no_checkpoint_loses_its_race_for_a_floor() {
    let mut grove = Grove::plant(100).await;
    grove.rounds(1, 120 * MINUTE).await;
    grove.write(10).await;
    grove.collect().await;
    assert_eq!((grove.newest_head().await.generation, grove.newest_head().await.log_floor), (1, 0));
    grove.compact().await;
    assert_eq!(grove.newest_head().await.log_floor, 2);
}

/// A checkpoint in flight: what it has stored is deeper than the head that the sweep read.
#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_in_flight() {
    let mut grove = Grove::plant(100).await;
    grove.rounds(3, 61 * MINUTE).await;
    grove.write(60).await;
    let gate = Gate::new();
    let held = Rule::new(Fault::HoldBefore(gate.clone())).op(FaultOp::Create).kind(ObjectKind::Head).once();
    grove.faults.add(held);
    let engine = grove.engine.clone();
    let checkpoint = tokio::spawn(async move { engine.compact("c", quiet()).await.unwrap().root.unwrap() });
    gate.arrived(1).await;
    // Everything of the next root is there but its head. The sweep is another node's.
    let other = join(&grove.objects, settings()).await;
    grove.timed.advance(120 * MINUTE);
    let report = other.collect_garbage("c", false, quiet()).await.unwrap();
    assert_eq!((report.recent_roots, of(&report, ObjectKind::Root).deleted), (1, 2));
    assert!(of(&report, ObjectKind::Root).kept == 2 && of(&report, ObjectKind::Plan).kept >= 2);
    gate.open();
    let root = checkpoint.await.unwrap();
    grove.roots.push((root, grove.model.clone()));
    grove.kept_from(2).await;
    grove.timed.advance(61 * MINUTE);
    grove.rounds(2, 61 * MINUTE).await;
    grove.collect().await;
    grove.nothing_else(1).await;
}

/// A sweep that sleeps between looking and deleting while checkpoints are made and other sweeps collect.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_sweep() {
    let mut grove = Grove::plant(100).await;
    grove.rounds(4, 61 * MINUTE).await;
    let gate = Gate::new();
    grove
        .faults
        .add(Rule::new(Fault::HoldBefore(gate.clone())).op(FaultOp::Delete).kind(ObjectKind::Log).times(8));
    let other = join(&grove.objects, settings()).await;
    let late = tokio::spawn(async move { other.collect_garbage("c", false, quiet()).await.unwrap() });
    gate.arrived(1).await;
    grove.rounds(5, 20 * MINUTE).await;
    grove.collect().await;
    grove.rounds(1, MINUTE).await;
    gate.open();
    late.await.unwrap();
    grove.kept_from(6).await;
    grove.collect().await;
    grove.nothing_else(4).await;
}

/// A node that slept on an older root, and a read that began on one.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_on_an_older_root() {
    let mut grove = Grove::plant(100).await;
    grove.rounds(1, MINUTE).await;
    let other = join(&grove.objects, settings()).await;
    let checker = Checker::new(&other, "c", Metric::L2);
    checker.records(&grove.model, &[]).await;
    let include = || Include { vector: true, attributes: IncludeAttributes::All };
    let mut scan = other.scan("c", include(), Consistency::Strong, At::Now, 1).await.unwrap();
    scan.try_next().await.unwrap().unwrap();
    let old = grove.roots[0].0;
    assert_eq!(other.count("c", Consistency::Strong, At::Root(old)).await.unwrap().count, 60 - 15);
    // Entries that it has in its tail, of a head that it does not know.
    grove.write(7000).await;
    checker.records(&grove.model, &[]).await;
    grove.compact().await;
    grove.timed.advance(61 * MINUTE);
    grove.rounds(1, 61 * MINUTE).await;
    grove.collect().await;
    grove.kept_from(2).await;
    // A scan that outlived the retention ends with an error, never short.
    let rest = scan.try_collect::<Vec<_>>().await;
    match rest {
        Ok(pages) => assert_eq!(pages.len(), 60 - 15 - 1),
        Err(error) => assert_eq!(error.reason, "ROOT_EXPIRED"),
    }
    // Eventual reads may begin on the old root, too: they find out and begin again.
    let query =
        QueryRequest { consistency: Consistency::Eventual, ..query("c", &Generator(3).vector(DIM), 10) };
    other.query(query).await.unwrap();
    let ids = vec![RecordId::U64(1)];
    other.fetch("c", ids, include(), Consistency::Eventual, At::Now).await.unwrap();
    checker.records(&grove.model, &[]).await;
    let error = other.count("c", Consistency::Strong, At::Root(grove.roots[1].0)).await.unwrap_err();
    assert_eq!(error.reason, "ROOT_EXPIRED");
}

/// A node whose root was collected while the log still has what came after it: whatever it does first goes on from a newer
/// root, and nothing is called damage.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_whose_root_is_gone() {
    for first in 0..5 {
        let mut grove = Grove::plant_with(100, Settings { root_retention: MINUTE, ..settings() }).await;
        grove.rounds(1, MINUTE).await;
        let other = join(&grove.objects, settings()).await;
        Checker::new(&other, "c", Metric::L2).records(&grove.model, &[]).await;
        grove.rounds(2, 2 * MINUTE).await;
        // Also when it learns of the loss only while its own entry is on the way.
        let gate = Gate::new();
        let held = first == 4;
        if held {
            let rule = Rule::new(Fault::HoldBefore(gate.clone())).op(FaultOp::Create).kind(ObjectKind::Log);
            other.count("c", Consistency::Strong, At::Now).await.unwrap();
            grove.faults.add(rule.once());
        } else {
            grove.collect().await;
        }
        let (id, vector) = (RecordId::U64(1), vec![0.5; DIM]);
        let batch = rows(DIM, &[(id.clone(), vector.clone())]);
        match first {
            0 => drop(other.count("c", Consistency::Strong, At::Now).await.unwrap()),
            1 => drop(other.delete_ids("c", vec![id.clone()], None).await.unwrap()),
            2 => drop(other.upsert("c", batch, None).await.unwrap()),
            3 => drop(other.upsert("c", batch, Some("key".into())).await.unwrap()),
            _ => {
                let write = tokio::spawn({
                    let other = other.clone();
                    async move { other.upsert("c", batch, None).await }
                });
                gate.arrived(1).await;
                grove.rounds(1, 2 * MINUTE).await;
                grove.collect().await;
                gate.open();
                write.await.unwrap().unwrap();
            }
        }
        match first {
            0 => {}
            1 => drop(grove.model.0.remove(&id)),
            _ => drop(grove.model.0.insert(id, vector)),
        }
        Checker::new(&other, "c", Metric::L2).records(&grove.model, &[]).await;
        Checker::new(&grove.engine, "c", Metric::L2).records(&grove.model, &[]).await;
    }
}

/// A verification whose root is collected under way begins again, or says that the root is not kept: nothing is damaged.
#[tokio::test(flavor = "multi_thread")]
async fn a_verification_outlives_its_root() {
    for newest in [true, false] {
        let mut grove = Grove::plant_with(100, Settings { root_retention: MINUTE, ..settings() }).await;
        grove.rounds(1, MINUTE).await;
        let (gate, faults) = (Gate::new(), Faults::new());
        let other = join(&faults.wrap(grove.objects.clone()), settings()).await;
        other.count("c", Consistency::Strong, At::Now).await.unwrap();
        let at = if newest { At::Now } else { At::Root(grove.roots[0].0) };
        faults.add(Rule::new(Fault::HoldBefore(gate.clone())).op(FaultOp::Get).kind(ObjectKind::Pack).once());
        let verify = tokio::spawn(async move { other.verify("c", at, quiet()).await });
        gate.arrived(1).await;
        grove.rounds(2, 2 * MINUTE).await;
        grove.collect().await;
        gate.open();
        match verify.await.unwrap() {
            Ok(report) => assert!(newest && report.ok && report.root != Some(grove.roots[0].0), "{report:?}"),
            Err(error) => assert!(!newest && error.reason == "ROOT_EXPIRED", "{error:?}"),
        }
    }
}

/// A writer whose create sleeps for hours: its number was taken, folded and collected, and its entry lands where nobody
/// reads. It must find out and write again.
#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_sleeps_through_the_retention() {
    let mut grove = Grove::plant(100).await;
    grove.rounds(1, MINUTE).await;
    // The sleeper reaches its store through a gate of its own.
    let (gate, faults) = (Gate::new(), Faults::new());
    let sleeper = join(&faults.wrap(grove.objects.clone()), settings()).await;
    assert_eq!(sleeper.count("c", Consistency::Strong, At::Now).await.unwrap().count, 45);
    faults.add(Rule::new(Fault::HoldBefore(gate.clone())).op(FaultOp::Create).kind(ObjectKind::Log).once());
    let record = (RecordId::Str("sleeper".into()), vec![0.5; DIM]);
    let batch = rows(DIM, std::slice::from_ref(&record));
    let settings = Duration::from_secs(1);
    let write = tokio::spawn(async move { sleeper.upsert("c", batch, None).await });
    gate.arrived(1).await;
    grove.rounds(2, 61 * MINUTE).await;
    grove.collect().await;
    let floor = grove.newest_head().await.log_floor;
    assert!(floor >= 3, "the sleeper's number is below the floor");
    gate.open();
    let wrote = tokio::time::timeout(settings * 30, write).await.unwrap().unwrap().unwrap();
    assert!(wrote.token.sequence > floor, "written again, past the floor");
    grove.model.0.insert(record.0, record.1);
    Checker::new(&grove.engine, "c", Metric::L2).records(&grove.model, &[]).await;
    grove.compact().await;
    grove.timed.advance(61 * MINUTE);
    grove.collect().await;
    grove.nothing_else(1).await;
    grove.kept_from(3).await;
}

async fn tag(grove: &Grove, n: u64, target: Option<RootRef>) {
    let record = TagRecord { tag: "keep".into(), number: n, target };
    let key = Key::Tag { uuid: grove.uuid, tag: "keep".into(), n };
    grove.store().create_if_absent(&key, record.encode().unwrap().into()).await.unwrap();
}

async fn root_ref(grove: &Grove, at: usize) -> RootRef {
    let root = grove.roots[at].0;
    let listed = grove.engine.list_roots("c").await.unwrap();
    let found = listed.iter().find(|found| found.root == root).unwrap();
    RootRef { root, depth: found.depth, generation: found.generation }
}

/// Tags and pins hold what they name, the newest number of a tag counts, and a mark tells late comers.
#[tokio::test(flavor = "multi_thread")]
async fn tags_and_pins_hold() {
    let mut grove = Grove::plant(100).await;
    grove.rounds(6, 61 * MINUTE).await;
    let (second, third, fourth) =
        (root_ref(&grove, 1).await, root_ref(&grove, 2).await, root_ref(&grove, 3).await);
    tag(&grove, 1, Some(second)).await;
    tag(&grove, 2, Some(third)).await;
    let fork = CollectionUuid(Uuid::from_u128(5));
    let pin = Key::Pin { uuid: grove.uuid, fork: fork.0 };
    let bytes = PinRecord { fork, target: fourth }.encode().unwrap();
    grove.store().create_if_absent(&pin, bytes.into()).await.unwrap();
    let report = grove.collect().await;
    assert_eq!((report.recent_roots, report.held_roots), (1, 2));
    let check = async |grove: &Grove, kept: &[usize]| {
        let engine = join(&grove.objects, settings()).await;
        let checker = Checker::new(&engine, "c", Metric::L2);
        for (at, (root, model)) in grove.roots.iter().enumerate() {
            if kept.contains(&at) {
                checker.at(*root).records(model, &[]).await;
                checker.at(*root).verified(model).await;
            } else {
                let error = engine.count("c", Consistency::Strong, At::Root(*root)).await.unwrap_err();
                assert_eq!(error.reason, "ROOT_EXPIRED");
            }
        }
    };
    check(&grove, &[2, 3, 5]).await;
    // The mark: whoever names a root of this depth now comes too late.
    let marks: Vec<_> =
        grove.listing().await.into_keys().filter(|k| matches!(k, Key::Dropped { .. })).collect();
    let mark = SweepRecord::decode(&grove.store().get(&marks[0]).await.unwrap()).unwrap();
    assert_eq!((mark.up_to_depth, marks.len()), (5, 1));
    assert_ne!(mark.nonce, Nonce([0; 16]));
    tag(&grove, 3, None).await;
    assert_eq!(grove.collect().await.held_roots, 1);
    check(&grove, &[3, 5]).await;
    grove.store().delete(&pin).await.unwrap();
    assert_eq!(grove.collect().await.held_roots, 0);
    check(&grove, &[5]).await;
    grove.nothing_else(1).await;
    // A tag on what is gone is damage, not a reason to delete.
    tag(&grove, 4, Some(second)).await;
    grove.rounds(2, 61 * MINUTE).await;
    let before = grove.listing().await;
    let error = grove.engine.collect_garbage("c", false, quiet()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::DataLoss);
    let mut after = grove.listing().await;
    after.retain(|key, _| before.contains_key(key));
    assert_eq!(after, before);
}

/// A manifest that cannot be read ends the sweep before anything is deleted.
#[tokio::test(flavor = "multi_thread")]
async fn damage_stops_a_sweep() {
    let mut grove = Grove::plant(100).await;
    grove.rounds(3, 61 * MINUTE).await;
    grove.rounds(3, MINUTE).await;
    let before = grove.listing().await;
    for fault in
        [Fault::FlipByte(700), Fault::FailBefore(Failure::Unavailable), Fault::FailBefore(Failure::Denied)]
    {
        for (op, kind) in [(FaultOp::Get, ObjectKind::Root), (FaultOp::Get, ObjectKind::Head)] {
            grove.faults.add(Rule::new(fault.clone()).op(op).kind(kind).after(1));
            grove.engine.collect_garbage("c", false, quiet()).await.unwrap_err();
            grove.faults.heal();
        }
    }
    for kind in [ObjectKind::Other] {
        grove.faults.add(Rule::new(Fault::FailBefore(Failure::Unavailable)).op(FaultOp::List).kind(kind));
        grove.engine.collect_garbage("c", false, quiet()).await.unwrap_err();
        grove.faults.heal();
    }
    let mut after = grove.listing().await;
    after.retain(|key, _| !matches!(key, Key::Dropped { .. }));
    assert_eq!(after, before);
    grove.collect().await;
    grove.kept_from(2).await;
}

/// Stops a sweep at every one of its requests, before and after it is applied: what is kept stays whole, and the next sweep
/// ends where one that was not disturbed does.
#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_every_step() {
    let mut grove = Grove::plant(100).await;
    grove.rounds(2, 61 * MINUTE).await;
    grove.write(7000).await;
    grove.rounds(2, 20 * MINUTE).await;
    grove.rounds(1, 30 * MINUTE).await;
    let start = grove.memory.clone();
    grove.memory = Arc::new(start.fork());
    // The undisturbed run: its requests, its end.
    let (faults, timed) = (Faults::new(), grove.timed.clone());
    let objects = faults.wrap(timed.wrap(grove.memory.clone()));
    let engine = join(&objects, settings()).await;
    engine.describe("c").await.unwrap();
    faults.forget_requests();
    engine.collect_garbage("c", false, quiet()).await.unwrap();
    let requests = faults.requests().len() as u64;
    let marks = |mut listing: BTreeMap<Key, u64>| {
        listing.retain(|key, _| !matches!(key, Key::Probe { .. }));
        listing
    };
    let end = marks(grove.listing().await);
    assert!(requests > 40, "{requests}");
    for at in 0..requests {
        for fault in [Fault::HangBefore, Fault::HangAfter] {
            grove.memory = Arc::new(start.fork());
            let faults = Faults::new();
            grove.objects = faults.wrap(timed.wrap(grove.memory.clone()));
            let engine = join(&grove.objects, settings()).await;
            engine.describe("c").await.unwrap();
            faults.forget_requests();
            faults.add(Rule::new(fault.clone()).after(at).times(1000));
            let sweep = engine.collect_garbage("c", false, quiet());
            let hangs = async {
                while faults.count(|request| request.fault.is_some()) == 0 {
                    tokio::task::yield_now().await;
                }
                // What flies beside the request that hangs comes down.
                tokio::time::sleep(Duration::from_millis(1)).await;
            };
            tokio::select! {
                _ = sweep => panic!("it cannot end"),
                () = hangs => {}
            }
            faults.heal();
            grove.engine = join(&grove.objects, settings()).await;
            if at % 8 == 0 {
                grove.kept_from_quickly(2).await;
            }
            grove.collect().await;
            assert_eq!(marks(grove.listing().await), end, "{fault:?} at {at}");
        }
    }
    grove.kept_from(2).await;
}

impl Grove {
    /// Kept roots verify.
    async fn kept_from_quickly(&self, from: usize) {
        let checker = Checker::new(&self.engine, "c", Metric::L2);
        for (root, model) in &self.roots[from..] {
            checker.at(*root).verified(model).await;
        }
    }
}

/// Deletes that fail, or that were applied and say otherwise, listings that lag.
#[tokio::test(flavor = "multi_thread")]
async fn unclear_deletes_and_lagging_lists() {
    let mut grove = Grove::plant(100).await;
    grove.rounds(5, 30 * MINUTE).await;
    let start = grove.memory.clone();
    let mut ends = BTreeSet::new();
    for seed in 0..12 {
        grove.memory = Arc::new(start.fork());
        grove.objects = grove.faults.wrap(grove.timed.wrap(grove.memory.clone()));
        grove.engine = join(&grove.objects, settings()).await;
        grove.engine.describe("c").await.unwrap();
        if seed % 3 == 2 {
            // Nothing that was written within two hours is listed.
            grove.timed.lag(120 * MINUTE);
        }
        for kind in [ObjectKind::Log, ObjectKind::Root, ObjectKind::Pack] {
            for failure in [Fault::FailBefore(Failure::Unavailable), Fault::FailAfter(Failure::Unavailable)] {
                if seed % 3 == 1 {
                    grove.faults.add(Rule::new(failure).op(FaultOp::Delete).kind(kind).after(seed).times(7));
                }
            }
        }
        if seed % 3 == 0 {
            grove.faults.random(RandomFaults {
                seed,
                fail_before: 150,
                fail_after: 150,
                ..Default::default()
            });
        }
        let first = grove.engine.collect_garbage("c", false, quiet()).await;
        grove.faults.heal();
        if let Ok(report) = &first {
            assert!(seed % 3 == 2 || report.deleted().0 > 0);
        }
        grove.kept_from_quickly(3).await;
        grove.timed.lag(Duration::ZERO);
        grove.collect().await;
        grove.kept_from(3).await;
        let mut end = grove.listing().await;
        end.retain(|key, _| !matches!(key, Key::Probe { .. }));
        ends.insert(end.into_iter().collect::<Vec<_>>());
    }
    assert_eq!(ends.len(), 1, "all ways end in one place");
}

/// A dropped collection: its objects go after the grace time, but for what pins reach; heads, record and name stay.
#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_collection() {
    for pinned in [false, true] {
        let mut grove = Grove::plant(100).await;
        grove.rounds(3, MINUTE).await;
        grove.write(10).await;
        let target = root_ref(&grove, 1).await;
        if pinned {
            let fork = CollectionUuid(Uuid::from_u128(5));
            let pin = Key::Pin { uuid: grove.uuid, fork: fork.0 };
            let bytes = PinRecord { fork, target }.encode().unwrap();
            grove.store().create_if_absent(&pin, bytes.into()).await.unwrap();
        }
        let before = grove.listing().await;
        grove.engine.delete_collection("c").await.unwrap();
        grove.timed.advance(23 * 60 * MINUTE);
        grove.engine.collect_all_garbage().await.unwrap();
        let after = grove.listing().await;
        assert!(before.keys().all(|key| after.contains_key(key)), "within the grace time nothing goes");
        grove.timed.advance(61 * MINUTE);
        grove.engine.collect_all_garbage().await.unwrap();
        let after = grove.listing().await;
        let io = grove.io(grove.record().await);
        let mut kept: BTreeSet<Key> = BTreeSet::new();
        if pinned {
            let (manifest, _) = io.manifest(target.depth, &target.root).await.unwrap();
            kept.extend(manifest.packs.iter().map(|pack| io.pack_key(&pack.object)));
            kept.extend(manifest.segments.iter().map(|segment| io.segment_key(&segment.object)));
            kept.insert(io.root_key(target.depth, &target.root));
        }
        for key in after.keys() {
            let fine = match key {
                Key::Head { .. } | Key::Record { .. } | Key::Pin { .. } => true,
                Key::Plan { depth, .. } => pinned && *depth == target.depth,
                key => kept.contains(key),
            };
            assert!(fine, "{key} stays behind");
        }
        assert!(kept.iter().all(|key| after.contains_key(key)));
        let create = CreateCollection::new("c", DIM as u32, Metric::L2);
        grove.engine.create_collection(create).await.unwrap();
        assert_eq!(grove.engine.count("c", Consistency::Strong, At::Now).await.unwrap().count, 0);
    }
}
