//! The in-process backend passes the suite, by a clock that stands still unless it is told to move.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use pando_coordination::{Coordinator, HeadHint, InProcess, LeaseKey, WatchEvent, conformance};
use pando_testkit::ManualClock;
use uuid::Uuid;

#[tokio::test]
async fn passes_the_conformance_suite() {
    let clock = ManualClock::shared();
    let coordinator = InProcess::new(clock.clone());
    let advance = |d: Duration| -> futures::future::BoxFuture<'static, ()> {
        clock.advance(d);
        Box::pin(async {})
    };
    conformance::run(&coordinator, &advance).await;
}

#[tokio::test]
async fn a_wipe_loses_leases_and_hints_and_watchers_hear_of_it() {
    let clock = ManualClock::shared();
    let coordinator = InProcess::new(clock.clone());
    let collection = Uuid::new_v4();
    let key = LeaseKey::Owner(collection);
    let lease = coordinator.acquire_lease(&key, Duration::from_secs(5)).await.unwrap().unwrap();
    let hint = HeadHint { collection, generation: 4, root: [1; 32], sequence: 9 };
    coordinator.hint_head(hint).await.unwrap();
    let mut watch = coordinator.watch_heads().await.unwrap();
    assert_eq!(watch.next().await, Some(WatchEvent::Reset(vec![hint])));

    coordinator.wipe();
    assert_eq!(watch.next().await, Some(WatchEvent::Gone(collection)));
    assert!(!lease.renew().await.unwrap());
    assert!(coordinator.acquire_lease(&key, Duration::from_secs(5)).await.unwrap().is_some());
    // A hint after the wipe may be older than the one lost: nobody can know.
    let older = HeadHint { generation: 2, ..hint };
    coordinator.hint_head(older).await.unwrap();
    assert_eq!(coordinator.head_hint(collection).await.unwrap(), Some(older));
}

#[tokio::test]
async fn sixteen_askers_get_one_lease() {
    let coordinator = Arc::new(InProcess::new(ManualClock::shared()));
    for _ in 0..50 {
        let key = LeaseKey::Owner(Uuid::new_v4());
        let asks = (0..16).map(|_| {
            let (coordinator, key) = (Arc::clone(&coordinator), key.clone());
            tokio::spawn(
                async move { coordinator.acquire_lease(&key, Duration::from_secs(5)).await.unwrap() },
            )
        });
        let answers = futures::future::join_all(asks).await;
        let leases: Vec<_> = answers.into_iter().filter_map(|a| a.unwrap()).collect();
        assert_eq!(leases.len(), 1);
    }
}
