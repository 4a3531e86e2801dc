//! Many callers at once: writes are grouped, queries do not disturb each other, calls that are dropped leave nothing behind
//! that hurts, and a name has one owner.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::TryStreamExt;
use pando_engine::api::*;
use pando_engine::{Engine, ErrorKind, Settings};
use pando_store::{Folder, ObjectKind};
use pando_testkit::{Fault, FaultOp, Faults, Gate, Rule};

use crate::checks::*;
use crate::support::*;

const DIM: usize = 16;

async fn create(engine: &Engine, metric: Metric, small_limit: u64) {
    let create = CreateCollection { small_limit, ..CreateCollection::new("c", DIM as u32, metric) };
    engine.create_collection(create).await.unwrap();
}

/// Calls that come while a put is in flight share the next entry.
#[tokio::test(flavor = "multi_thread")]
async fn fifty_callers_share_entries() {
    let faults = Faults::new();
    let engine = join(&faults.wrap_in_memory(), by_hand()).await;
    create(&engine, Metric::L2, 100).await;
    let mut generator = Generator(50);
    let gate = Gate::new();
    faults.add(Rule::new(Fault::HoldBefore(gate.clone())).op(FaultOp::Create).kind(ObjectKind::Log).once());
    let mut model = Model::default();
    let mut calls = Vec::new();
    for n in 0..50u64 {
        // Some ids are written by several callers, one is deleted by some.
        let id = RecordId::U64(if n % 10 == 9 { 0 } else { n });
        let vector = generator.vector(DIM);
        model.0.insert(id.clone(), vector.clone());
        let engine = engine.clone();
        calls.push(tokio::spawn(async move {
            engine.upsert("c", rows(DIM, &[(id, vector)]), None).await.unwrap().token.sequence
        }));
        if n == 0 {
            gate.arrived(1).await;
        }
    }
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    gate.open();
    let mut entries: HashMap<u64, usize> = HashMap::new();
    for call in calls {
        *entries.entry(call.await.unwrap()).or_default() += 1;
    }
    assert_eq!(entries.into_iter().collect::<Vec<_>>().len(), 2, "one held, one for all the others");
    let count = engine.count("c", Consistency::Strong, At::Now).await.unwrap();
    assert_eq!((count.count, count.token.sequence), (45, 2));
    // Which of the writers of record 0 was last, nobody knows.
    let include = Include { vector: true, ..Include::default() };
    let answer =
        engine.fetch("c", vec![RecordId::U64(0)], include, Consistency::Strong, At::Now).await.unwrap();
    model.0.insert(RecordId::U64(0), answer.records[0].as_ref().unwrap().vector.clone().unwrap());
    let checker = Checker::new(&engine, "c", Metric::L2);
    checker.records(&model, &[]).await;
    engine.compact("c", quiet()).await.unwrap();
    checker.records(&model, &[]).await;
    checker.verified(&model).await;
}

/// Calls of all kinds in one group: each is told what it did, in the order of the group.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_of_everything() {
    let faults = Faults::new();
    let engine = join(&faults.wrap_in_memory(), by_hand()).await;
    create(&engine, Metric::L2, 100).await;
    let mut generator = Generator(51);
    let mut one = |id: u64| rows(DIM, &[(RecordId::U64(id), generator.vector(DIM))]);
    engine.upsert("c", one(1), None).await.unwrap();
    engine.compact("c", quiet()).await.unwrap();
    let gate = Gate::new();
    faults.add(Rule::new(Fault::HoldBefore(gate.clone())).op(FaultOp::Create).kind(ObjectKind::Log).once());
    let mut calls: Vec<Pin<Box<dyn Future<Output = pando_engine::Result<WriteOutcome>> + Send>>> = Vec::new();
    let delete = |ids: &[u64], key: Option<&str>| {
        let (engine, ids, key) =
            (engine.clone(), ids.iter().copied().map(RecordId::U64).collect(), key.map(String::from));
        async move { engine.delete_ids("c", ids, key).await }
    };
    let upsert = |rows: Rows, key: Option<&str>| {
        let (engine, key) = (engine.clone(), key.map(String::from));
        async move { engine.upsert("c", rows, key).await }
    };
    let keyed = one(5);
    calls.push(Box::pin(upsert(one(9), None)));
    calls.push(Box::pin(delete(&[1, 2], None)));
    calls.push(Box::pin(delete(&[1], None)));
    calls.push(Box::pin(upsert(one(1), None)));
    calls.push(Box::pin(delete(&[1, 1, 1], None)));
    calls.push(Box::pin(upsert(keyed.clone(), Some("k"))));
    calls.push(Box::pin(upsert(keyed, Some("k"))));
    calls.push(Box::pin(upsert(one(6), Some("k"))));
    calls.push(Box::pin(delete(&[5], None)));
    calls.push(Box::pin(delete(&[], None)));
    let mut tasks = Vec::new();
    for (at, call) in calls.into_iter().enumerate() {
        tasks.push(tokio::spawn(call));
        if at == 0 {
            gate.arrived(1).await;
        } else {
            // Each is in the queue before the next.
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }
    gate.open();
    let mut told = Vec::new();
    for task in tasks {
        told.push(task.await.unwrap().map(|outcome| outcome.affected).map_err(|e| e.reason));
    }
    let reused = Err("IDEMPOTENCY_KEY_REUSED");
    assert_eq!(told, [Ok(1), Ok(1), Ok(0), Ok(1), Ok(1), Ok(1), Ok(1), reused, Ok(1), Ok(0)]);
    for compacted in [false, true] {
        if compacted {
            engine.compact("c", quiet()).await.unwrap();
        }
        let ids = [1, 2, 5, 6, 9].map(RecordId::U64).to_vec();
        let answer = engine.fetch("c", ids, Include::default(), Consistency::Strong, At::Now).await.unwrap();
        let there: Vec<bool> = answer.records.iter().map(Option::is_some).collect();
        assert_eq!(there, [false, false, false, false, true]);
        assert_eq!(engine.count("c", Consistency::Strong, At::Now).await.unwrap().count, 1);
    }
}

/// Answers and work done are the same alone and in company, with everything in memory and with nothing.
#[tokio::test(flavor = "multi_thread")]
async fn queries_at_once_answer_as_alone() {
    for cache_memory in [1 << 30, 0] {
        let engine = join(&bucket(), Settings { cache_memory, ..by_hand() }).await;
        create(&engine, Metric::Cosine, 200).await;
        let mut generator = Generator(52);
        let mut batch = |ids: std::ops::Range<u64>| -> Vec<_> {
            ids.map(|id| (RecordId::U64(id), generator.vector(DIM))).collect::<Vec<_>>()
        };
        let (first, second) = (batch(0..1200), batch(1100..1400));
        engine.upsert("c", rows(DIM, &first), None).await.unwrap();
        engine.compact("c", quiet()).await.unwrap();
        // Several bodies, and some queries need vectors of both root and tail.
        for part in second.chunks(70) {
            engine.upsert("c", rows(DIM, part), None).await.unwrap();
        }
        let model = Model(first.into_iter().chain(second).collect());
        let checker = Checker::new(&engine, "c", Metric::Cosine);
        checker.records(&model, &[]).await;
        for k in [1, 150] {
            let queries: Vec<_> = (0..4).map(|_| generator.vector(DIM)).collect();
            checker.searches(&model, &queries, k).await;
        }
        let mut requests = Vec::new();
        for n in 0..12 {
            let k = [1, 50, 100][n % 3];
            let effort = [Effort::default(), Effort::RecallTarget(1.0), Effort::Leaves(3)][n / 3 % 3];
            let vectors = (0..1 + n % 3).map(|_| generator.vector(DIM)).collect();
            requests.push(QueryRequest { vectors, effort, exact: n % 6 == 5, ..query("c", &[], k) });
        }
        let mut alone = Vec::new();
        for request in &requests {
            alone.push(engine.query(request.clone()).await.unwrap());
        }
        for _ in 0..2 {
            let together = requests.iter().map(|request| {
                let (engine, request) = (engine.clone(), request.clone());
                tokio::spawn(async move { engine.query(request).await.unwrap() })
            });
            for (alone, task) in alone.iter().zip(together.collect::<Vec<_>>()) {
                let together = task.await.unwrap();
                assert_eq!(alone.len(), together.len());
                for (a, b) in alone.iter().zip(&together) {
                    same(&found(b), &found(a), "in company");
                    assert_eq!(a.work, b.work);
                }
            }
        }
    }
}

/// A future that is dropped after it was polled so many times.
struct Dropped<F>(Option<Pin<Box<F>>>, u64);

impl<F: Future> Future for Dropped<F> {
    type Output = Option<F::Output>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(inner) = &mut self.0 else { return Poll::Ready(None) };
        if let Poll::Ready(out) = inner.as_mut().poll(cx) {
            return Poll::Ready(Some(out));
        }
        self.1 = self.1.saturating_sub(1);
        if self.1 == 0 {
            self.0 = None;
            return Poll::Ready(None);
        }
        Poll::Pending
    }
}

fn dropped<F: Future>(future: F, polls: u64) -> Dropped<F> {
    Dropped(Some(Box::pin(future)), polls)
}

/// Calls of every kind, dropped wherever they wait. Acknowledged writes are there, dropped ones wholly or not at all, and
/// everything works afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn dropped_calls() {
    for (cache_memory, sole_owner) in [(1 << 30, false), (0, false), (0, true)] {
        let (objects, dir) = (bucket(), pando_testkit::temp_dir());
        let settings = Settings { cache_memory, ..by_hand() };
        let engine = match sole_owner {
            true => open_with(dir.path(), settings).await,
            false => join(&objects, settings).await,
        };
        create(&engine, Metric::L2, 50).await;
        let mut generator = Generator(53);
        // What each group of records may be: its last acknowledged vector or a later one.
        let mut may: Vec<Vec<Option<Vec<f32>>>> = vec![vec![None]; 12];
        let mut finished = 0;
        for _ in 0..260 {
            let group = generator.below(12);
            let ids: Vec<RecordId> = (group * 5..group * 5 + 5).map(RecordId::U64).collect();
            let polls = 1 + generator.below(9);
            let vector = generator.vector(DIM);
            let batch: Vec<_> = ids.iter().map(|id| (id.clone(), vector.clone())).collect();
            let all = Include { vector: true, attributes: IncludeAttributes::All };
            let wrote = match generator.below(9) {
                0 | 1 => {
                    may[group as usize].push(Some(vector));
                    dropped(engine.upsert("c", rows(DIM, &batch), None), polls)
                        .await
                        .map(|out| drop(out.unwrap()))
                }
                2 => {
                    may[group as usize].push(None);
                    dropped(engine.delete_ids("c", ids, None), polls).await.map(|out| drop(out.unwrap()))
                }
                read => {
                    let request = QueryRequest { include: all.clone(), ..query("c", &vector, 40) };
                    let done = match read {
                        3 => dropped(engine.compact("c", quiet()), polls * 2)
                            .await
                            .map(|out| drop(out.unwrap())),
                        4 => dropped(engine.verify("c", At::Now, quiet()), polls)
                            .await
                            .map(|out| assert!(out.unwrap().ok)),
                        5 => dropped(engine.query(request), polls).await.map(|out| drop(out.unwrap())),
                        6 => dropped(engine.query(QueryRequest { exact: true, ..request }), polls)
                            .await
                            .map(|out| drop(out.unwrap())),
                        7 => {
                            let scan = async {
                                let pages =
                                    engine.scan("c", all, Consistency::Strong, At::Now, 9).await.unwrap();
                                pages.try_collect::<Vec<_>>().await.unwrap()
                            };
                            dropped(scan, polls).await.map(drop)
                        }
                        _ => dropped(engine.fetch("c", ids, all, Consistency::Strong, At::Now), polls)
                            .await
                            .map(|out| drop(out.unwrap())),
                    };
                    finished += u64::from(done.is_some());
                    continue;
                }
            };
            if wrote.is_some() {
                finished += 1;
                let may = &mut may[group as usize];
                may.drain(..may.len() - 1);
            }
        }
        assert!(finished > 40, "{finished} calls were not dropped");
        let mut model = Model::default();
        let include = Include { vector: true, ..Include::default() };
        // Writes that were dropped are still on their way to the log: one more goes after them.
        engine.upsert("c", rows(DIM, &[(RecordId::U64(1000), vec![1.0; DIM])]), None).await.unwrap();
        model.0.insert(RecordId::U64(1000), vec![1.0; DIM]);
        for (group, may) in may.iter().enumerate() {
            let ids: Vec<RecordId> = (group as u64 * 5..group as u64 * 5 + 5).map(RecordId::U64).collect();
            let answer =
                engine.fetch("c", ids.clone(), include.clone(), Consistency::Strong, At::Now).await.unwrap();
            let found: Vec<_> = answer.records.into_iter().map(|r| r.map(|r| r.vector.unwrap())).collect();
            assert!(found.iter().all(|v| *v == found[0]), "group {group} in pieces");
            assert!(may.contains(&found[0]), "group {group}");
            model.0.extend(ids.into_iter().zip(found).filter_map(|(id, v)| Some((id, v?))));
        }
        let checker = Checker::new(&engine, "c", Metric::L2);
        for _ in 0..2 {
            checker.records(&model, &[]).await;
            checker.searches(&model, &[generator.vector(DIM)], 10).await;
            engine.compact("c", quiet()).await.unwrap();
            checker.verified(&model).await;
        }
        engine.shutdown().await;
    }
}

/// Twenty creates and deletes of one name at a time: one create wins, and what the winner made is there.
#[tokio::test(flavor = "multi_thread")]
async fn one_winner_of_a_name() {
    for engines in [1, 2] {
        let objects = bucket();
        let mut all = Vec::new();
        for _ in 0..engines {
            all.push(join(&objects, by_hand()).await);
        }
        for _ in 0..5 {
            let creates = (0..20).map(|n| {
                let engine = all[n % all.len()].clone();
                // Each with a seed of its own, to know the winner by.
                let create = CreateCollection { seed: n as u64, ..CreateCollection::new("c", 3, Metric::L2) };
                tokio::spawn(async move { engine.create_collection(create).await })
            });
            let creates = creates.collect::<Vec<_>>();
            let mut winners = Vec::new();
            for create in creates {
                match create.await.unwrap() {
                    Ok(description) => winners.push(description),
                    Err(error) => assert_eq!(error.kind, ErrorKind::AlreadyExists, "{error:?}"),
                }
            }
            assert_eq!(winners.len(), 1);
            for engine in &all {
                let found = engine.describe("c").await.unwrap();
                assert_eq!((found.uuid, found.config.seed), (winners[0].uuid, winners[0].config.seed));
                assert_eq!(engine.list_collections().await.unwrap(), ["c"]);
            }
            let deletes = (0..20).map(|n| {
                let engine = all[n % all.len()].clone();
                tokio::spawn(async move { engine.delete_collection("c").await })
            });
            let deletes = deletes.collect::<Vec<_>>();
            let mut won = 0;
            for delete in deletes {
                match delete.await.unwrap() {
                    Ok(()) => won += 1,
                    Err(error) => assert_eq!(error.kind, ErrorKind::NotFound, "{error:?}"),
                }
            }
            assert!(won >= 1);
            for engine in &all {
                let error = engine.describe("c").await.unwrap_err();
                assert_eq!(error.kind, ErrorKind::NotFound);
                assert!(engine.list_collections().await.unwrap().is_empty());
            }
        }
    }
}

/// Creates, writes and deletes of one name all at once: errors are those of a name that comes and goes, an acknowledged
/// write went to the collection that the name had at that time, and there is at most one collection at the end.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_comes_and_goes() {
    for engines in [1, 2] {
        let objects = bucket();
        let mut all = Vec::new();
        for _ in 0..engines {
            all.push(join(&objects, by_hand()).await);
        }
        let tasks = (0..20u64).map(|n| {
            let engine: Arc<Engine> = all[n as usize % all.len()].clone();
            tokio::spawn(async move {
                let mut generator = Generator(n);
                for _ in 0..12 {
                    let error = match generator.below(5) {
                        0 => engine.create_collection(CreateCollection::new("c", 3, Metric::L2)).await.err(),
                        1 => engine.delete_collection("c").await.err(),
                        2 => engine.compact("c", quiet()).await.err(),
                        3 => engine.count("c", Consistency::Strong, At::Now).await.err(),
                        _ => {
                            engine.upsert("c", rows(3, &[(RecordId::U64(n), vec![1.0; 3])]), None).await.err()
                        }
                    };
                    if let Some(error) = error {
                        let kinds = [ErrorKind::NotFound, ErrorKind::AlreadyExists];
                        assert!(kinds.contains(&error.kind), "{error:?}");
                    }
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        let _ = all[0].delete_collection("c").await;
        for engine in &all {
            engine.create_collection(CreateCollection::new("c", 3, Metric::L2)).await.err();
            engine.upsert("c", rows(3, &[(RecordId::U64(1), vec![1.0; 3])]), None).await.unwrap();
            assert_eq!(engine.count("c", Consistency::Strong, At::Now).await.unwrap().count, 1);
        }
        let uuid = all[0].describe("c").await.unwrap().uuid;
        let log: Vec<_> = all[0].environment().store.list(&Folder::Log(uuid)).try_collect().await.unwrap();
        assert_eq!(log.len(), engines);
    }
}
