//! Many tiny collections in one engine: 500, or as many as `PANDO_TINY` says (the issue asks for 10,000 by command).

use std::sync::Arc;
use std::time::{Duration, Instant};

use pando_coordination::InProcess;
use pando_engine::api::*;
use pando_engine::environment::SystemRandom;
use pando_engine::{Components, Engine, Settings};
use pando_kernels::Kernels;
use pando_store::{Store, StoreOptions};
use pando_testkit::ManualClock;

use crate::checks::*;
use crate::support::*;

const DIM: usize = 16;

/// An engine whose time the test moves, so that collections grow idle at once.
async fn open(store: Store, clock: Arc<ManualClock>) -> Arc<Engine> {
    let components = Components {
        store,
        coordinator: Arc::new(InProcess::new(clock.clone())),
        kernels: Kernels::from_env().unwrap(),
        clock,
        random: Arc::new(SystemRandom),
    };
    let settings = Settings { auto_compact: true, auto_collect: false, threads: 2, ..Settings::default() };
    Engine::open(components, settings).await.unwrap()
}

fn records(of: u64) -> Vec<(RecordId, Vec<f32>)> {
    let mut generator = Generator(of);
    (0..3 + of % 5).map(|id| (RecordId::U64(id), generator.vector(DIM))).collect()
}

/// Lets time pass until no collection is open. The loops of the engine sleep by the same clock.
async fn grow_idle(engine: &Engine, clock: &ManualClock) {
    let started = Instant::now();
    while engine.open_collections() > 0 {
        clock.advance(Duration::from_secs(31));
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert!(started.elapsed() < Duration::from_secs(120), "{} stay open", engine.open_collections());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tiny_collections() {
    let count: u64 = std::env::var("PANDO_TINY").map_or(500, |text| text.parse().expect("a number"));
    let dir = tempfile::tempdir().unwrap();
    let local = || Store::open_local(dir.path(), StoreOptions::default()).unwrap();
    let clock = ManualClock::shared();
    let engine = open(local(), clock.clone()).await;
    let started = Instant::now();
    for at in 0..count {
        let name = format!("tiny-{at}");
        engine.create_collection(CreateCollection::new(&name, DIM as u32, Metric::L2)).await.unwrap();
        engine.upsert(&name, rows(DIM, &records(at)), None).await.unwrap();
    }
    println!("{count} collections written in {:?}", started.elapsed());
    let started = Instant::now();
    for at in 0..count {
        let name = format!("tiny-{at}");
        let before = engine.environment().store.counters().total();
        assert!(engine.compact(&name, quiet()).await.unwrap().published);
        let after = engine.environment().store.counters().total();
        let described = engine.describe(&name).await.unwrap();
        assert_eq!((described.leaves, described.levels), (1, 2), "one leaf under the top node: no tree");
        // Segment, pack, manifest, plan, head: five objects, a few kilobytes.
        let (puts, bytes) = (
            after.creates + after.puts - before.creates - before.puts,
            after.bytes_written - before.bytes_written,
        );
        assert!(puts <= 5 && bytes < 32 << 10, "{puts} writes of {bytes} bytes");
    }
    println!("each compacted in {:?}", started.elapsed() / count as u32);
    grow_idle(&engine, &clock).await;
    let env = engine.environment();
    assert_eq!((env.resident.used(), env.tails.used()), (0, 0), "idle collections hold no memory");
    engine.shutdown().await;
    drop(engine);

    let started = Instant::now();
    let engine = open(local(), clock.clone()).await;
    let store = engine.environment().store.clone();
    println!("open after {:?}, {} requests", started.elapsed(), store.counters().total().requests());
    assert_eq!(engine.open_collections(), 0, "nothing is opened before somebody asks for it");
    let name = format!("tiny-{}", count / 2);
    let vector = &records(count / 2)[1].1;
    let answer = engine.query(query(&name, vector, 1)).await.unwrap().remove(0);
    assert_eq!(answer.matches[0].record.id, RecordId::U64(1));
    let took = started.elapsed();
    println!("first answer after {took:?}, {} requests", store.counters().total().requests());
    assert!(took < Duration::from_secs(20), "start-up takes {took:?}");
    assert_eq!(engine.list_collections().await.unwrap().len() as u64, count);
    let model = Model(records(count / 2).into_iter().collect());
    Checker::new(&engine, &name, Metric::L2).searches(&model, std::slice::from_ref(vector), 3).await;
    engine.collect_all_garbage().await.unwrap();
    grow_idle(&engine, &clock).await;
}
