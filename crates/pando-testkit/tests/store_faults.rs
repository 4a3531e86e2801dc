//! The store's behaviour under faults, and the fault store's own.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use pando_store::{
    Clock, CreateOutcome, ErrorKind, Folder, Key, ObjectKind, PutOutcome, Series, Store, StoreOptions,
    conformance,
};
use pando_testkit::{
    Failure, Fault, FaultOp, Faults, Gate, ManualClock, RandomFaults, Rule, damage, temp_dir,
};
use uuid::Uuid;

fn quick() -> StoreOptions {
    StoreOptions {
        backoff: Duration::from_micros(100),
        max_backoff: Duration::from_millis(1),
        ..StoreOptions::default()
    }
}

fn store(faults: &Faults) -> Store {
    Store::new(faults.wrap_in_memory(), "bucket/prefix", None, quick()).unwrap()
}

fn entry(sequence: u64) -> Key {
    Key::Log { uuid: Uuid::from_u128(7), sequence }
}

const BODY: Bytes = Bytes::from_static(b"body of an entry");

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn without_faults_the_suite_passes() {
    conformance::run(&store(&Faults::new())).await;
    let dir = temp_dir();
    let faults = Faults::new();
    let local = Store::open_local_wrapped(dir.path(), quick(), |inner| faults.wrap(inner)).unwrap();
    conformance::run(&local).await;
    assert!(faults.requests().iter().all(|r| r.fault.is_none() && r.ok.is_some()));
}

#[tokio::test]
async fn a_lost_reply_is_unclear_and_never_retried() {
    let faults = Faults::new();
    let store = store(&faults);
    for (fault, applied) in [
        (Fault::FailAfter(Failure::Unavailable), true),
        (Fault::FailBefore(Failure::Unavailable), false),
        (Fault::FailBefore(Failure::Denied), false),
        (Fault::FailAfter(Failure::Denied), true),
    ] {
        let key = Key::Head { uuid: Uuid::new_v4(), generation: 1 };
        faults.add(Rule::new(fault).op(FaultOp::Create).once());
        let error = store.create_if_absent(&key, BODY).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unclear);
        assert_eq!(store.try_get(&key).await.unwrap().is_some(), applied);
    }
    assert_eq!(faults.count(|r| r.op == FaultOp::Create), 4, "one request each");
    // 409 and 412: exists, whether or not anything was written. Reading tells.
    for failure in [Failure::Conflict, Failure::Precondition] {
        faults.add(Rule::new(Fault::FailBefore(failure)).op(FaultOp::Create).once());
        assert_eq!(store.create_if_absent(&entry(1), BODY).await.unwrap(), CreateOutcome::Exists);
        assert_eq!(store.try_get(&entry(1)).await.unwrap(), None);
    }
}

#[tokio::test]
async fn a_create_that_hangs_is_unclear_at_its_deadline() {
    let clock = ManualClock::shared();
    let faults = Faults::new();
    let options = StoreOptions { clock: clock.clone(), ..StoreOptions::default() };
    let store = Store::new(faults.wrap_in_memory(), "", None, options.clone()).unwrap();
    faults.add(Rule::new(Fault::HangAfter).op(FaultOp::Create));
    let create = tokio::spawn({
        let store = store.clone();
        async move { store.create_if_absent(&entry(1), BODY).await }
    });
    while clock.sleepers() == 0 {
        tokio::task::yield_now().await;
    }
    clock.advance(options.write_timeout - Duration::from_millis(1));
    tokio::task::yield_now().await;
    assert!(!create.is_finished());
    clock.advance(Duration::from_millis(1));
    assert_eq!(create.await.unwrap().unwrap_err().kind(), ErrorKind::Unclear);
    assert_eq!(store.get(&entry(1)).await.unwrap(), BODY, "it was applied all the same");
}

#[tokio::test]
async fn a_listing_without_an_answer_ends() {
    let clock = ManualClock::shared();
    let faults = Faults::new();
    let options = StoreOptions { clock: clock.clone(), ..StoreOptions::default() };
    let store = Store::new(faults.wrap_in_memory(), "", None, options.clone()).unwrap();
    store.create_if_absent(&entry(1), BODY).await.unwrap();
    let list =
        |store: Store| async move { store.list(&Folder::Log(Uuid::from_u128(7))).collect::<Vec<_>>().await };
    assert_eq!(list(store.clone()).await.len(), 1);
    faults.add(Rule::new(Fault::HangAfter).op(FaultOp::List));
    let list = tokio::spawn(list(store));
    while clock.sleepers() == 0 {
        tokio::task::yield_now().await;
    }
    clock.advance(options.read_timeout);
    let listed = list.await.unwrap();
    assert_eq!(listed.len(), 1, "nothing after the error");
    assert_eq!(listed[0].as_ref().unwrap_err().kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn reads_are_retried_within_bounds() {
    let faults = Faults::new();
    let store = store(&faults);
    store.create_if_absent(&entry(1), BODY).await.unwrap();
    faults.add(Rule::new(Fault::FailBefore(Failure::Unavailable)).op(FaultOp::Get).times(4));
    assert_eq!(store.get(&entry(1)).await.unwrap(), BODY);
    assert_eq!(store.counters().of(ObjectKind::Log).retries, 4);

    faults.add(Rule::new(Fault::FailBefore(Failure::Unavailable)).op(FaultOp::Get));
    faults.forget_requests();
    assert_eq!(store.get(&entry(1)).await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(faults.count(|_| true), 5);
    faults.heal();
    faults.forget_requests();
    assert_eq!(store.get(&entry(2)).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(faults.count(|_| true), 1, "absence is an answer, not a failure");
}

#[tokio::test]
async fn a_read_that_hangs_is_asked_again() {
    let faults = Faults::new();
    let options = StoreOptions { read_timeout: Duration::from_millis(20), ..quick() };
    let store = Store::new(faults.wrap_in_memory(), "", None, options).unwrap();
    store.create_if_absent(&entry(1), BODY).await.unwrap();
    faults.add(Rule::new(Fault::HangBefore).op(FaultOp::Get).once());
    assert_eq!(store.get(&entry(1)).await.unwrap(), BODY);
    assert_eq!(faults.count(|r| r.op == FaultOp::Get && r.ok.is_none()), 1);
}

#[tokio::test]
async fn short_and_damaged_answers_are_caught() {
    let faults = Faults::new();
    let store = store(&faults);
    let key = Key::Pack { uuid: Uuid::from_u128(7), depth: 1, hash: [0; 32] };
    let bytes = Bytes::from(vec![9u8; 4096]);
    let hash = *blake3::hash(&bytes).as_bytes();
    store.put_content_addressed(&key, bytes.clone()).await.unwrap();

    faults.add(Rule::new(Fault::Truncate(1)).op(FaultOp::Get).once());
    assert_eq!(store.get(&key).await.unwrap(), bytes, "a broken connection is tried again");
    faults.add(Rule::new(Fault::Truncate(4096)).op(FaultOp::Get).once());
    assert_eq!(store.get_ranges(&key, &[0..5, 7..4000]).await.unwrap()[1], bytes[7..4000]);
    faults.add(Rule::new(Fault::FlipByte(100)).op(FaultOp::Get).once());
    assert_eq!(store.get_block(&key, 0, 4096, &hash).await.unwrap(), bytes, "damaged on the way");

    faults.add(Rule::new(Fault::Truncate(1)).op(FaultOp::Get));
    assert_eq!(store.get_range(&key, 0..4096).await.unwrap_err().kind(), ErrorKind::TooShort);
    faults.heal();
    faults.add(Rule::new(Fault::FlipByte(100)).op(FaultOp::Get));
    let error = store.get_block(&key, 0, 4096, &hash).await.unwrap_err();
    assert_eq!((error.kind(), error.object()), (ErrorKind::Corrupt, ObjectKind::Pack));
}

#[tokio::test]
async fn damage_on_disk_is_data_loss_of_that_object_only() {
    let dir = temp_dir();
    let store = Store::open_local(dir.path(), quick()).unwrap();
    let key = |n| Key::Pack { uuid: Uuid::from_u128(7), depth: n, hash: [0; 32] };
    let bytes = Bytes::from(vec![9u8; 4096]);
    let hash = *blake3::hash(&bytes).as_bytes();
    for n in [1, 2] {
        store.put_content_addressed(&key(n), bytes.clone()).await.unwrap();
    }
    damage(&dir.path().join("store").join(key(1).path()), 2000);
    assert_eq!(store.get_block(&key(1), 0, 4096, &hash).await.unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(store.get_block(&key(2), 0, 4096, &hash).await.unwrap(), bytes);
}

#[tokio::test]
async fn content_addressed_writes_survive_faults() {
    let faults = Faults::new();
    let store = store(&faults);
    let key = Key::Segment { uuid: Uuid::from_u128(7), depth: 1, hash: [0; 32] };
    faults.add(Rule::new(Fault::FailAfter(Failure::Unavailable)).op(FaultOp::Put).times(2));
    assert_eq!(store.put_content_addressed(&key, BODY).await.unwrap(), PutOutcome::Written);
    assert_eq!(store.get(&key).await.unwrap(), BODY);

    // A large upload whose part fails leaves nothing, and the next one succeeds.
    let large = vec![3u8; 40 << 20];
    let key = Key::Segment { uuid: Uuid::from_u128(7), depth: 2, hash: [0; 32] };
    let data = temp_dir();
    let data = pando_store::DataDir::open(data.path()).unwrap();
    let faults = Faults::new();
    let store = Store::new(faults.wrap_in_memory(), "", Some(data), quick()).unwrap();
    for fail in [true, false] {
        if fail {
            let rule = Rule::new(Fault::FailBefore(Failure::Unavailable)).op(FaultOp::Upload);
            faults.add(rule.after(2).once());
        }
        let mut writer = store.writer(ObjectKind::Segment).unwrap();
        writer.write(&large).await.unwrap();
        let outcome = writer.finish(&key).await;
        assert_eq!(outcome.is_err(), fail);
        assert_eq!(store.try_head(&key).await.unwrap().is_some(), !fail);
    }
    assert_eq!(store.get(&key).await.unwrap(), large);
}

#[tokio::test]
async fn the_probe_refuses_a_store_that_overwrites() {
    /// Takes every create for a plain put.
    #[derive(Debug)]
    struct Careless(object_store::memory::InMemory);
    impl std::fmt::Display for Careless {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("Careless")
        }
    }
    use futures::stream::BoxStream;
    use object_store::path::Path;
    use object_store::*;
    #[async_trait::async_trait]
    impl ObjectStore for Careless {
        async fn put_opts(&self, p: &Path, payload: PutPayload, _: PutOptions) -> Result<PutResult> {
            self.0.put_opts(p, payload, PutOptions::default()).await
        }
        async fn put_multipart_opts(
            &self,
            p: &Path,
            o: PutMultipartOptions,
        ) -> Result<Box<dyn MultipartUpload>> {
            self.0.put_multipart_opts(p, o).await
        }
        async fn get_opts(&self, p: &Path, o: GetOptions) -> Result<GetResult> {
            self.0.get_opts(p, o).await
        }
        fn delete_stream(&self, l: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
            self.0.delete_stream(l)
        }
        fn list(&self, p: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
            self.0.list(p)
        }
        async fn list_with_delimiter(&self, p: Option<&Path>) -> Result<ListResult> {
            self.0.list_with_delimiter(p).await
        }
        async fn copy_opts(&self, from: &Path, to: &Path, o: CopyOptions) -> Result<()> {
            self.0.copy_opts(from, to, o).await
        }
    }
    let careless = Arc::new(Careless(object_store::memory::InMemory::new()));
    let refused = Store::new(careless, "", None, quick()).unwrap().probe().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
}

#[tokio::test]
async fn the_probe_bears_lost_answers_but_not_for_ever() {
    let faults = Faults::new();
    let store = store(&faults);
    faults.add(
        Rule::new(Fault::FailAfter(Failure::Unavailable)).kind(ObjectKind::Probe).op(FaultOp::Create).once(),
    );
    store.probe().await.unwrap();
    faults.add(Rule::new(Fault::FailAfter(Failure::Unavailable)).kind(ObjectKind::Probe).op(FaultOp::Create));
    assert_eq!(store.probe().await.unwrap_err().kind(), ErrorKind::Unavailable);
    faults.heal();
    let left = Store::list(&store, &pando_store::Folder::All);
    let left: Vec<_> = futures::TryStreamExt::try_collect(left).await.unwrap();
    assert!(left.is_empty(), "the probe cleans up: {left:?}");
}

#[tokio::test]
async fn the_newest_is_found_through_failures_and_while_it_moves() {
    let faults = Faults::new();
    let store = store(&faults);
    let heads = Series::Heads(Uuid::from_u128(7));
    for n in 1..=10 {
        store.create_if_absent(&heads.key(n), BODY).await.unwrap();
    }
    faults.random(RandomFaults { seed: 3, fail_before: 200, ..RandomFaults::default() });
    for hint in 0..20 {
        assert_eq!(store.newest(&heads, hint).await.unwrap(), 10);
    }
    faults.heal();
    // Two heads come between the probe of 11 and its answer.
    let gate = Gate::new();
    faults.add(Rule::new(Fault::HoldAfter(gate.clone())).op(FaultOp::Head).key(&heads.key(10)).once());
    let search = tokio::spawn({
        let (store, heads) = (store.clone(), heads.clone());
        async move { store.newest(&heads, 10).await.unwrap() }
    });
    gate.arrived(1).await;
    for n in 11..=12 {
        store.create_if_absent(&heads.key(n), BODY).await.unwrap();
    }
    gate.open();
    assert!((10..=12).contains(&search.await.unwrap()), "some moment's newest");
}

#[tokio::test]
async fn rules_choose_their_requests() {
    let faults = Faults::new();
    let store = store(&faults);
    faults.add(
        Rule::new(Fault::FailBefore(Failure::Unavailable))
            .op(FaultOp::Create)
            .kind(ObjectKind::Log)
            .after(1)
            .times(2),
    );
    let mut outcomes = Vec::new();
    for sequence in 1..=4 {
        outcomes.push(store.create_if_absent(&entry(sequence), BODY).await.is_ok());
        let head = Key::Head { uuid: Uuid::from_u128(7), generation: sequence };
        store.create_if_absent(&head, BODY).await.unwrap();
    }
    assert_eq!(outcomes, [true, false, false, true]);
    let log = faults.requests();
    assert_eq!(log.len(), 8);
    assert_eq!((log[2].kind, log[2].ok, log[2].bytes), (ObjectKind::Log, Some(false), BODY.len() as u64));
    assert!(log[2].fault.as_ref().is_some_and(|f| f.contains("FailBefore")));
}

#[tokio::test]
async fn random_faults_repeat_by_seed() {
    let run = |seed| async move {
        let faults = Faults::new();
        let store = store(&faults);
        faults.random(RandomFaults {
            seed,
            fail_before: 100,
            fail_after: 100,
            conflict: 100,
            truncate: 50,
            flip: 50,
            delay: 50,
            max_delay: Duration::from_micros(50),
        });
        for sequence in 1..=200 {
            let _ = store.create_if_absent(&entry(sequence), BODY).await;
            let _ = store.get(&entry(sequence)).await;
        }
        faults.requests().into_iter().map(|r| r.fault).collect::<Vec<_>>()
    };
    let (a, b, c) = (run(1).await, run(1).await, run(2).await);
    assert_eq!(a, b);
    assert_ne!(a, c);
    for wanted in ["FailBefore(Unavailable)", "FailAfter", "Conflict", "Truncate", "FlipByte", "Delay"] {
        assert!(a.iter().flatten().any(|f| f.contains(wanted)), "{wanted} never came");
    }
}

#[tokio::test]
async fn the_manual_clock_wakes_who_is_due() {
    let clock = ManualClock::shared();
    let start = clock.now();
    let sleeper = |secs| {
        let clock = clock.clone();
        tokio::spawn(async move { clock.sleep(Duration::from_secs(secs)).await })
    };
    let (short, long) = (sleeper(5), sleeper(50));
    while clock.sleepers() < 2 {
        tokio::task::yield_now().await;
    }
    clock.advance(Duration::from_secs(6));
    short.await.unwrap();
    assert!(!long.is_finished());
    assert_eq!(clock.now() - start, Duration::from_secs(6));
    clock.advance(Duration::from_secs(44));
    long.await.unwrap();
}
