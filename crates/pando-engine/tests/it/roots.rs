//! Law 3 across machines and crashes: a small generated log has these root ids wherever it is compacted, and a checkpoint that
//! was killed at any request is repeated to the same root.
//!
//! `golden/roots.txt` was written on x86-64. Another machine, architecture or instruction set compares by running this test
//! (`PANDO_SIMD=scalar` and so on). A change of the index's algorithm (version 0 may still change) writes it anew:
//! `PANDO_WRITE_GOLDEN=1 cargo nextest run -p pando-engine golden_roots`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use object_store::{ObjectStore, ObjectStoreExt};
use pando_coordination::InProcess;
use pando_engine::api::*;
use pando_engine::environment::Random;
use pando_engine::{Components, Engine, Settings};
use pando_kernels::Kernels;
use pando_store::{Store, SystemClock};
use pando_testkit::{Fault, Faults, Gate, Rule};

use crate::checks::*;
use crate::support::*;

const DIM: usize = 24;

/// Nonces that a run repeats: they are in the log, and the log decides the root.
#[derive(Debug)]
struct Counted(AtomicU64);

impl Random for Counted {
    fn bytes16(&self) -> [u8; 16] {
        let n = self.0.fetch_add(1, Ordering::Relaxed);
        let mut generator = Generator(n);
        [generator.next().to_le_bytes(), generator.next().to_le_bytes()]
            .concat()
            .try_into()
            .expect("16 bytes")
    }
}

async fn engine(objects: Arc<dyn ObjectStore>, nonces: u64, threads: usize) -> Arc<Engine> {
    let clock = Arc::new(SystemClock);
    let components = Components {
        store: Store::new(objects, "", None, hasty()).unwrap(),
        coordinator: Arc::new(InProcess::new(clock.clone())),
        kernels: Kernels::from_env().expect("PANDO_SIMD is available"),
        clock,
        random: Arc::new(Counted(AtomicU64::new(nonces))),
    };
    Engine::open(components, Settings { threads, ..by_hand() }).await.unwrap()
}

/// Numbers alone, without functions of a C library: the same on every machine.
fn records(generator: &mut Generator, ids: std::ops::Range<u64>) -> Vec<(RecordId, Vec<f32>)> {
    ids.map(|n| {
        let id = if n % 4 == 1 { RecordId::Str(format!("text {n}")) } else { RecordId::U64(n) };
        (id, generator.vector(DIM))
    })
    .collect()
}

async fn write(engine: &Engine, generator: &mut Generator, round: u64) {
    let first = if round == 0 { 0 } else { 900 + 150 * round };
    let records = records(generator, first..first + if round == 0 { 1_000 } else { 220 });
    for (at, part) in records.chunks(130).enumerate() {
        engine.upsert("c", rows(DIM, part), Some(format!("key {round} {at}"))).await.unwrap();
    }
    let gone = (0..60).map(|_| RecordId::U64(generator.below(1_000))).collect();
    engine.delete_ids("c", gone, None).await.unwrap();
}

fn create(metric: Metric) -> CreateCollection {
    CreateCollection { small_limit: 300, seed: 5, ..CreateCollection::new("c", DIM as u32, metric) }
}

/// Roots of three checkpoints: a tree is built, then balanced twice.
async fn roots(metric: Metric, threads: usize) -> Vec<String> {
    let engine = engine(bucket(), 0, threads).await;
    engine.create_collection(create(metric)).await.unwrap();
    let mut generator = Generator(70 + metric as u64);
    let mut out = Vec::new();
    for round in 0..3 {
        write(&engine, &mut generator, round).await;
        let root = engine.compact("c", quiet()).await.unwrap().root.unwrap();
        out.push(format!("{metric} {round} {root}"));
    }
    out
}

#[tokio::test(flavor = "multi_thread")]
async fn golden_roots() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/roots.txt");
    let mut found = Vec::new();
    for metric in [Metric::L2, Metric::Cosine, Metric::Dot] {
        let of = roots(metric, 1).await;
        assert_eq!(of, roots(metric, 2).await, "two threads");
        found.extend(of);
    }
    let found = found.join("\n") + "\n";
    if std::env::var_os("PANDO_WRITE_GOLDEN").is_some() {
        std::fs::write(path, &found).unwrap();
    }
    assert_eq!(found, std::fs::read_to_string(path).unwrap(), "other roots than those written down");
}

/// The second checkpoint, killed at its first request, at its second, and so on: whoever repeats it makes the same root.
#[tokio::test(flavor = "multi_thread")]
async fn killed_at_every_request() {
    let before = bucket();
    let first = engine(before.clone(), 0, 2).await;
    first.create_collection(create(Metric::L2)).await.unwrap();
    let mut generator = Generator(80);
    write(&first, &mut generator, 0).await;
    first.compact("c", quiet()).await.unwrap();
    write(&first, &mut generator, 1).await;
    first.shutdown().await;
    let mut expected = None;
    let (mut request, mut killed) = (0, 0);
    loop {
        let objects = bucket();
        copy(&before, &objects).await;
        let (faults, gate) = (Faults::new(), Gate::new());
        let doomed = engine(faults.wrap(objects.clone()), 1_000, 2).await;
        doomed.count("c", Consistency::Strong, At::Now).await.unwrap();
        faults.add(Rule::new(Fault::HoldBefore(gate.clone())).after(request).once());
        let finished = tokio::select! {
            outcome = doomed.compact("c", quiet()) => Some(outcome.unwrap()),
            () = gate.arrived(1) => None,
        };
        doomed.crash();
        faults.heal();
        gate.open();
        doomed.shutdown().await;
        let again = engine(objects, 2_000, 1).await;
        let root = again.compact("c", quiet()).await.unwrap().root.unwrap();
        assert_eq!(*expected.get_or_insert(root), root, "killed at request {request}");
        let report = again.verify("c", At::Now, quiet()).await.unwrap();
        assert!(report.ok, "killed at request {request}: {:?}", report.problems);
        again.shutdown().await;
        if finished.is_some() {
            break;
        }
        killed += 1;
        // Each of the first, where the plan is; then every third.
        request += if request < 8 { 1 } else { 3 };
    }
    assert!(killed > 12, "a checkpoint of {killed} requests");
}

async fn copy(from: &Arc<dyn ObjectStore>, to: &Arc<dyn ObjectStore>) {
    use futures::TryStreamExt;
    let listed: Vec<_> = from.list(None).try_collect().await.unwrap();
    for object in listed {
        let bytes = from.get(&object.location).await.unwrap().bytes().await.unwrap();
        to.put(&object.location, bytes.into()).await.unwrap();
    }
}
