//! Two engines on one store: neither is its sole owner. Nothing is lost, no strong read is stale, checkpoints that race make
//! one head a generation.

use futures::TryStreamExt;
use pando_engine::api::*;
use pando_engine::{Engine, ErrorKind, Settings};
use pando_format::{Head, Stored};
use pando_store::{Folder, Key, ObjectKind};
use pando_testkit::{Fault, FaultOp, Faults, Gate, Rule};

use crate::checks::*;
use crate::support::*;

const DIM: usize = 12;

async fn create(engine: &Engine, small_limit: u64) {
    let create = CreateCollection { small_limit, ..CreateCollection::new("c", DIM as u32, Metric::L2) };
    engine.create_collection(create).await.unwrap();
}

/// Every head of the collection; generations have no gap and none is there twice (one key each).
async fn heads(engine: &Engine) -> Vec<Head> {
    let uuid = engine.describe("c").await.unwrap().uuid;
    let store = &engine.environment().store;
    let keys: Vec<_> = store.list(&Folder::Heads(uuid)).try_collect::<Vec<_>>().await.unwrap();
    let mut heads = Vec::new();
    for listed in keys {
        heads.push(Head::decode(&store.get(&listed.key).await.unwrap()).unwrap());
    }
    heads.sort_by_key(|head| head.generation);
    heads
}

/// Both write, both read strongly, both compact at the same time.
#[tokio::test(flavor = "multi_thread")]
async fn both_write_read_and_compact() {
    let objects = bucket();
    let engines = [join(&objects, by_hand()).await, join(&objects, by_hand()).await];
    create(&engines[0], 100).await;
    let mut model = Model::default();
    let mut generator = Generator(40);
    for round in 0..8u64 {
        // Each on ids of its own, so that the outcome does not depend on who is first; deletes of what is old.
        let mut work = Vec::new();
        for (at, engine) in engines.iter().enumerate() {
            let mut calls: Vec<(Vec<(RecordId, Vec<f32>)>, Vec<RecordId>)> = Vec::new();
            for call in 0..6u64 {
                let ids = (0..12).map(|i| (i * 6 + call) * 2 + at as u64 + (round % 3) * 40);
                let batch: Vec<_> = ids.map(|id| (RecordId::U64(id), generator.vector(DIM))).collect();
                let gone = vec![RecordId::U64(call * 2 + at as u64 + (round + 1) % 3 * 40 + 20)];
                model.0.extend(batch.clone());
                gone.iter().for_each(|id| drop(model.0.remove(id)));
                calls.push((batch, gone));
            }
            let (engine, other) = (engine.clone(), engines[1 - at].clone());
            work.push(tokio::spawn(async move {
                for (batch, gone) in calls {
                    let wrote = engine.upsert("c", rows(DIM, &batch), None).await.unwrap();
                    // What one acknowledged, a strong read of the other sees.
                    let ids: Vec<RecordId> = batch.iter().map(|(id, _)| id.clone()).collect();
                    let include = Include { vector: true, ..Include::default() };
                    let answer = other.fetch("c", ids, include, Consistency::Strong, At::Now).await.unwrap();
                    assert!(answer.token.sequence >= wrote.token.sequence);
                    for ((id, vector), record) in batch.iter().zip(answer.records) {
                        assert_eq!(record.expect("there").vector.as_ref(), Some(vector), "{id}");
                    }
                    other.count("c", Consistency::AtLeast(wrote.token), At::Now).await.unwrap();
                    engine.delete_ids("c", gone, None).await.unwrap();
                }
            }));
        }
        let racing = async {
            if round % 2 == 1 {
                // While they write.
                let (a, b) = tokio::join!(engines[0].compact("c", quiet()), engines[1].compact("c", quiet()));
                a.unwrap();
                b.unwrap();
            }
        };
        racing.await;
        for work in work {
            work.await.unwrap();
        }
        let (a, b) = tokio::join!(engines[0].compact("c", quiet()), engines[1].compact("c", quiet()));
        let (a, b) = (a.unwrap(), b.unwrap());
        assert_eq!((a.root, a.generation, a.sequence), (b.root, b.generation, b.sequence), "round {round}");
        for engine in &engines {
            let checker = Checker::new(engine, "c", Metric::L2);
            checker.records(&model, &[]).await;
            let queries: Vec<_> = (0..3).map(|_| generator.vector(DIM)).collect();
            checker.searches(&model, &queries, 10).await;
            checker.verified(&model).await;
        }
    }
    let heads = heads(&engines[0]).await;
    assert!(heads.iter().map(|head| head.generation).eq(1..=heads.len() as u64));
    for pair in heads.windows(2) {
        assert_eq!(pair[1].root.unwrap().parent, Some(pair[0].root.unwrap().root), "built on the one before");
        assert!(pair[1].sequence > pair[0].sequence);
    }
    let listed: Vec<_> = engines[1].list_roots("c").await.unwrap().iter().map(|root| root.root).collect();
    assert!(listed.iter().rev().copied().eq(heads.iter().map(|head| head.root.unwrap().root)));
}

/// The same records written by both at once: one order for everybody.
#[tokio::test(flavor = "multi_thread")]
async fn both_write_the_same_records() {
    let objects = bucket();
    let engines = [join(&objects, by_hand()).await, join(&objects, by_hand()).await];
    create(&engines[0], 100).await;
    for round in 0..10u64 {
        let mut generator = Generator(41 + round);
        let vectors: Vec<_> = (0..2)
            .map(|_| (0..10).map(|id| (RecordId::U64(id), generator.vector(DIM))).collect::<Vec<_>>())
            .collect();
        let (a, b) = tokio::join!(
            engines[0].upsert("c", rows(DIM, &vectors[0]), None),
            engines[1].upsert("c", rows(DIM, &vectors[1]), None)
        );
        let (a, b) = (a.unwrap().token.sequence, b.unwrap().token.sequence);
        assert_ne!(a, b);
        let last = Model(vectors[usize::from(b > a)].iter().cloned().collect());
        for engine in &engines {
            Checker::new(engine, "c", Metric::L2).records(&last, &[]).await;
        }
        if round % 3 == 2 {
            engines[round as usize % 2].compact("c", quiet()).await.unwrap();
        }
    }
}

/// An engine that opened a collection before another deleted it and made a new one of the same name.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_changed_hands_elsewhere() {
    let objects = bucket();
    let (a, b) = (join(&objects, by_hand()).await, join(&objects, by_hand()).await);
    let one = |id: u64, x: f32| rows(DIM, &[(RecordId::U64(id), vec![x; DIM])]);
    for reads in [true, false] {
        create(&a, 100).await;
        a.upsert("c", one(1, 1.0), None).await.unwrap();
        assert_eq!(b.count("c", Consistency::Strong, At::Now).await.unwrap().count, 1);
        a.delete_collection("c").await.unwrap();
        create(&a, 100).await;
        a.upsert("c", one(2, 2.0), None).await.unwrap();
        a.upsert("c", one(3, 2.0), None).await.unwrap();
        // The first call on `b` after that, whatever it is, is about the new collection.
        if reads {
            assert_eq!(b.count("c", Consistency::Strong, At::Now).await.unwrap().count, 2);
        } else {
            b.upsert("c", one(4, 2.0), None).await.unwrap();
            assert_eq!(a.count("c", Consistency::Strong, At::Now).await.unwrap().count, 3);
        }
        b.delete_collection("c").await.unwrap();
        let error = a.count("c", Consistency::Strong, At::Now).await.unwrap_err();
        assert_eq!((error.kind, error.reason), (ErrorKind::NotFound, "COLLECTION_NOT_FOUND"));
        assert!(a.list_collections().await.unwrap().is_empty());
    }
}

/// A root that another engine published is found by its id, in a list and in a read.
#[tokio::test(flavor = "multi_thread")]
async fn a_root_made_elsewhere() {
    let objects = bucket();
    let (a, b) = (join(&objects, by_hand()).await, join(&objects, by_hand()).await);
    create(&a, 10).await;
    let (mut model, mut generator) = (Model::default(), Generator(45));
    assert_eq!(b.count("c", Consistency::Strong, At::Now).await.unwrap().count, 0);
    for round in 0..3u64 {
        let batch: Vec<_> =
            (0..40).map(|id| (RecordId::U64(id + round * 20), generator.vector(DIM))).collect();
        a.upsert("c", rows(DIM, &batch), None).await.unwrap();
        model.0.extend(batch);
        let root = a.compact("c", quiet()).await.unwrap().root.unwrap();
        if round == 1 {
            let listed = b.list_roots("c").await.unwrap();
            assert_eq!((listed[0].root, listed.len()), (root, 2));
        }
        Checker::new(&b, "c", Metric::L2).at(root).records(&model, &[]).await;
    }
    // Of a collection that took the name since.
    a.delete_collection("c").await.unwrap();
    create(&a, 10).await;
    let batch = vec![(RecordId::U64(1), generator.vector(DIM))];
    a.upsert("c", rows(DIM, &batch), None).await.unwrap();
    let root = a.compact("c", quiet()).await.unwrap().root.unwrap();
    Checker::new(&b, "c", Metric::L2).at(root).records(&Model(batch.into_iter().collect()), &[]).await;
}

/// A write is validated on one position of the log and must not be appended after a later one: here the other engine's
/// entries come between, seen by a strong read, while the key of the write is looked up.
#[tokio::test(flavor = "multi_thread")]
async fn entries_that_come_between_validation_and_writing() {
    for closes in [false, true] {
        let (objects, faults) = (bucket(), Faults::new());
        // Nothing is kept in memory, nothing is loaded in the background: the first read of a pack is the write's.
        let slow = join(&faults.wrap(objects.clone()), Settings { cache_memory: 0, ..by_hand() }).await;
        let other = join(&objects, by_hand()).await;
        create(&other, 100).await;
        let mut generator = Generator(42);
        let mut batch = |ids: std::ops::Range<u64>| -> Vec<(RecordId, Vec<f32>)> {
            ids.map(|id| (RecordId::U64(id), generator.vector(DIM))).collect()
        };
        let mut model = Model::default();
        let (first, keyed, alien) = (batch(0..30), batch(10..40), batch(20..50));
        other.upsert("c", rows(DIM, &first), Some("an old key".into())).await.unwrap();
        model.0.extend(first);
        other.compact("c", quiet()).await.unwrap();
        assert_eq!(slow.count("c", Consistency::Strong, At::Now).await.unwrap().count, 30);
        // The lookup of the key in the root waits at the gate.
        let gate = Gate::new();
        faults.add(Rule::new(Fault::HoldBefore(gate.clone())).op(FaultOp::Get).kind(ObjectKind::Pack).once());
        let writing = {
            let (slow, keyed) = (slow.clone(), keyed.clone());
            tokio::spawn(async move { slow.upsert("c", rows(DIM, &keyed), Some("key".into())).await })
        };
        gate.arrived(1).await;
        let theirs = match closes {
            true => {
                other.delete_collection("c").await.unwrap();
                None
            }
            false => Some(other.upsert("c", rows(DIM, &keyed), Some("key".into())).await.unwrap()),
        };
        if !closes {
            // Another one with the same ids, after it: a second application of the keyed write would undo it.
            other.upsert("c", rows(DIM, &alien), None).await.unwrap();
            model.0.extend(keyed.clone());
            model.0.extend(alien);
        }
        let count = slow.count("c", Consistency::Strong, At::Now).await;
        gate.open();
        let wrote = writing.await.unwrap();
        match theirs {
            None => {
                assert_eq!(count.unwrap_err().kind, ErrorKind::NotFound);
                let error = wrote.expect_err("an entry after the closing does not count");
                assert_eq!(error.kind, ErrorKind::NotFound);
            }
            Some(theirs) => {
                assert_eq!(count.unwrap().count, 50);
                assert_eq!(wrote.unwrap().token, theirs.token, "the key was used by now");
                for engine in [&slow, &other] {
                    Checker::new(engine, "c", Metric::L2).records(&model, &[]).await;
                }
            }
        }
    }
}

/// Two engines compact one log many times, each step of one held up while the other goes through.
#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_that_is_overtaken() {
    for kind in [ObjectKind::Plan, ObjectKind::Segment, ObjectKind::Pack, ObjectKind::Root, ObjectKind::Head]
    {
        let (objects, faults) = (bucket(), Faults::new());
        let slow = join(&faults.wrap(objects.clone()), by_hand()).await;
        let fast = join(&objects, by_hand()).await;
        create(&fast, 100).await;
        let (mut model, mut generator) = (Model::default(), Generator(43));
        for round in 0..3u64 {
            let batch: Vec<_> =
                (0..150).map(|id| (RecordId::U64(id + round * 100), generator.vector(DIM))).collect();
            fast.upsert("c", rows(DIM, &batch), None).await.unwrap();
            model.0.extend(batch);
            assert_eq!(
                slow.count("c", Consistency::Strong, At::Now).await.unwrap().count,
                model.0.len() as u64
            );
            let gate = Gate::new();
            faults.add(Rule::new(Fault::HoldBefore(gate.clone())).op(FaultOp::Create).kind(kind));
            faults.add(Rule::new(Fault::HoldBefore(gate.clone())).op(FaultOp::Put).kind(kind));
            faults.add(Rule::new(Fault::HoldBefore(gate.clone())).op(FaultOp::Upload).kind(kind));
            let compacting = {
                let slow = slow.clone();
                tokio::spawn(async move { slow.compact("c", quiet()).await })
            };
            gate.arrived(1).await;
            let outcome = fast.compact("c", quiet()).await.unwrap();
            // And one more, so that the slow one is two behind.
            if round == 1 {
                let batch = vec![(RecordId::U64(7), generator.vector(DIM))];
                fast.upsert("c", rows(DIM, &batch), None).await.unwrap();
                model.0.extend(batch);
                fast.compact("c", quiet()).await.unwrap();
            }
            gate.open();
            let late = compacting.await.unwrap().unwrap();
            assert!(late.generation >= outcome.generation);
            faults.heal();
            for engine in [&slow, &fast] {
                let checker = Checker::new(engine, "c", Metric::L2);
                checker.records(&model, &[]).await;
                checker.searches(&model, &[generator.vector(DIM)], 10).await;
                checker.verified(&model).await;
            }
        }
        let heads = heads(&fast).await;
        assert_eq!(heads.len(), 4, "{kind:?}: one head a checkpoint");
    }
}

/// A collection that is deleted while it is compacted: whoever compacts is told that it is gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_of_what_is_deleted_meanwhile() {
    let (objects, faults) = (bucket(), Faults::new());
    let slow = join(&faults.wrap(objects.clone()), by_hand()).await;
    let other = join(&objects, by_hand()).await;
    create(&other, 100).await;
    let mut generator = Generator(44);
    let batch: Vec<_> = (0..150).map(|id| (RecordId::U64(id), generator.vector(DIM))).collect();
    other.upsert("c", rows(DIM, &batch), None).await.unwrap();
    let gate = Gate::new();
    faults.add(Rule::new(Fault::HoldBefore(gate.clone())).op(FaultOp::Create).kind(ObjectKind::Head));
    let compacting = {
        let slow = slow.clone();
        tokio::spawn(async move { slow.compact("c", quiet()).await })
    };
    gate.arrived(1).await;
    let uuid = other.describe("c").await.unwrap().uuid;
    other.delete_collection("c").await.unwrap();
    gate.open();
    let error = compacting.await.unwrap().unwrap_err();
    assert_eq!((error.kind, error.reason), (ErrorKind::NotFound, "COLLECTION_NOT_FOUND"), "{error:?}");
    let newest = other.environment().store.get(&Key::Head { uuid, generation: 1 }).await.unwrap();
    assert!(Head::decode(&newest).unwrap().closed.is_some());
}
