//! What every [`Coordinator`] must do, as functions for tests. Each takes a coordinator, and a way to let time pass:
//! a manual clock is advanced, a real one is waited for.

use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use uuid::Uuid;

use crate::{Coordinator, DirtyHint, HeadHint, LeaseKey, Member, Roles, Watch, WatchEvent, Watched};

/// Lets time pass by the coordinator's clock.
pub type Advance<'a> = &'a (dyn Fn(Duration) -> BoxFuture<'static, ()> + Send + Sync);

/// The time to live that the suite works with; backends may round it up to at most twice as much.
const TTL: Duration = Duration::from_secs(2);

/// Runs the whole suite. Uses fresh collections and node names, so that it can run on a shared backend.
pub async fn run(c: &dyn Coordinator, advance: Advance<'_>) {
    leases_are_exclusive_until_they_end(c, advance).await;
    a_lost_lease_does_not_come_back(c, advance).await;
    members_come_and_go(c, advance).await;
    heads_only_go_forward(c).await;
    heads_are_watched(c).await;
    dirty_hints_end_and_are_cleared(c, advance).await;
    dirty_is_watched(c, advance).await;
    forgetting_drops_all_hints(c).await;
}

/// One holder at a time; released by dropping, kept by renewing, over when it is not renewed.
pub async fn leases_are_exclusive_until_they_end(c: &dyn Coordinator, advance: Advance<'_>) {
    let key = LeaseKey::Owner(Uuid::new_v4());
    let first = c.acquire_lease(&key, TTL).await.unwrap().expect("nobody holds it");
    assert!(first.is_held());
    assert!(c.acquire_lease(&key, TTL).await.unwrap().is_none(), "two holders");
    let other = c.acquire_lease(&LeaseKey::Owner(Uuid::new_v4()), TTL).await.unwrap();
    assert!(other.is_some(), "leases of different collections are independent");

    for _ in 0..6 {
        advance(TTL / 2).await;
        assert!(first.renew().await.unwrap(), "a renewed lease is kept");
    }
    assert!(c.acquire_lease(&key, TTL).await.unwrap().is_none());

    drop(first);
    let second = eventually(|| c.acquire_lease(&key, TTL)).await;
    advance(TTL * 3).await;
    assert!(!second.renew().await.unwrap(), "an ended lease cannot be renewed");
    assert!(!second.is_held());
    assert!(c.acquire_lease(&key, TTL).await.unwrap().is_some(), "an ended lease is free");
}

/// The old holder neither has the lease nor takes it from the new one by releasing.
pub async fn a_lost_lease_does_not_come_back(c: &dyn Coordinator, advance: Advance<'_>) {
    let key = LeaseKey::Owner(Uuid::new_v4());
    let old = c.acquire_lease(&key, TTL).await.unwrap().expect("free");
    advance(TTL * 3).await;
    let new = c.acquire_lease(&key, TTL).await.unwrap().expect("ended");
    old.lost().await;
    assert!(!old.renew().await.unwrap());
    drop(old);
    assert!(new.renew().await.unwrap(), "the old holder took the new one's lease away");
    assert!(c.acquire_lease(&key, TTL).await.unwrap().is_none());
}

/// Members are listed by name while their lease is held; a second registration replaces the first.
pub async fn members_come_and_go(c: &dyn Coordinator, advance: Advance<'_>) {
    let (a, b) = (member("a"), member("b"));
    let mut watch = c.watch_members().await.unwrap();
    let before = expect_reset(&mut watch).await;
    assert!(!before.contains(&a));

    let lease_a = c.register_member(a.clone(), TTL).await.unwrap();
    let lease_b = c.register_member(b.clone(), TTL * 8).await.unwrap();
    expect_put(&mut watch, &a).await;
    expect_put(&mut watch, &b).await;
    let listed = c.members().await.unwrap();
    assert!(listed.contains(&a) && listed.contains(&b));
    assert!(listed.is_sorted_by(|x, y| x.node <= y.node), "members are sorted by name");

    let moved = Member { address: "elsewhere:1".into(), ..a.clone() };
    let lease_moved = c.register_member(moved.clone(), TTL * 8).await.unwrap();
    expect_put(&mut watch, &moved).await;
    drop(lease_a);
    assert!(c.members().await.unwrap().contains(&moved), "the earlier lease is not the later one's");

    drop(lease_b);
    expect_gone(&mut watch, &b.key()).await;
    advance(TTL * 20).await;
    expect_gone(&mut watch, &moved.key()).await;
    assert!(!lease_moved.is_held());
    assert!(!c.members().await.unwrap().iter().any(|m| m.node == a.node));
}

/// An older head does not replace a newer one.
pub async fn heads_only_go_forward(c: &dyn Coordinator) {
    let hint = head(Uuid::new_v4(), 7);
    assert_eq!(c.head_hint(hint.collection).await.unwrap(), None);
    c.hint_head(hint).await.unwrap();
    c.hint_head(head(hint.collection, 6)).await.unwrap();
    assert_eq!(c.head_hint(hint.collection).await.unwrap(), Some(hint));
    let newer = head(hint.collection, 9);
    c.hint_head(newer).await.unwrap();
    assert_eq!(c.head_hint(hint.collection).await.unwrap(), Some(newer));
}

/// A watcher hears of what was there and of what comes; many changes may be told as one.
pub async fn heads_are_watched(c: &dyn Coordinator) {
    let (old, new) = (Uuid::new_v4(), Uuid::new_v4());
    c.hint_head(head(old, 1)).await.unwrap();
    let mut watch = c.watch_heads().await.unwrap();
    assert!(expect_reset(&mut watch).await.contains(&head(old, 1)));
    for generation in 1..=5000 {
        c.hint_head(head(new, generation)).await.unwrap();
    }
    expect_put(&mut watch, &head(new, 5000)).await;
}

/// A dirty hint is there until a head covers it or its time is over.
pub async fn dirty_hints_end_and_are_cleared(c: &dyn Coordinator, advance: Advance<'_>) {
    let hint = dirty(Uuid::new_v4(), 10);
    let listed = async || c.dirty().await.unwrap().into_iter().find(|d| d.collection == hint.collection);
    c.hint_dirty(hint, TTL).await.unwrap();
    c.hint_dirty(dirty(hint.collection, 9), TTL).await.unwrap();
    assert_eq!(listed().await, Some(hint), "an older hint does not replace a newer one");
    c.clear_dirty(hint.collection, 9).await.unwrap();
    assert_eq!(listed().await, Some(hint), "what a head does not cover stays dirty");
    c.clear_dirty(hint.collection, 10).await.unwrap();
    assert_eq!(listed().await, None);
    c.clear_dirty(hint.collection, 10).await.unwrap();

    c.hint_dirty(hint, TTL).await.unwrap();
    advance(TTL / 2).await;
    c.hint_dirty(hint, TTL * 8).await.unwrap();
    advance(TTL * 4).await;
    assert_eq!(listed().await, Some(hint), "a repeated hint lasts longer");
    advance(TTL * 20).await;
    assert_eq!(listed().await, None, "an idle collection has no key");
}

/// Announced, cleared and ended hints reach a watcher.
pub async fn dirty_is_watched(c: &dyn Coordinator, advance: Advance<'_>) {
    let (cleared, ended) = (Uuid::new_v4(), Uuid::new_v4());
    let mut watch = c.watch_dirty().await.unwrap();
    expect_reset(&mut watch).await;
    c.hint_dirty(dirty(cleared, 1), TTL * 8).await.unwrap();
    expect_put(&mut watch, &dirty(cleared, 1)).await;
    c.clear_dirty(cleared, 1).await.unwrap();
    expect_gone(&mut watch, &cleared).await;
    c.hint_dirty(dirty(ended, 1), TTL).await.unwrap();
    expect_put(&mut watch, &dirty(ended, 1)).await;
    advance(TTL * 3).await;
    expect_gone(&mut watch, &ended).await;
}

/// A deleted collection leaves no key.
pub async fn forgetting_drops_all_hints(c: &dyn Coordinator) {
    let collection = Uuid::new_v4();
    c.hint_head(head(collection, 3)).await.unwrap();
    c.hint_dirty(dirty(collection, 3), TTL * 8).await.unwrap();
    c.forget(collection).await.unwrap();
    assert_eq!(c.head_hint(collection).await.unwrap(), None);
    assert!(!c.dirty().await.unwrap().iter().any(|d| d.collection == collection));
}

fn member(name: &str) -> Member {
    Member {
        node: format!("{name}-{}", Uuid::new_v4()),
        address: "127.0.0.1:7700".into(),
        internal_address: "127.0.0.1:7702".into(),
        roles: Roles { gateway: true, query: true, compactor: false },
        format_version: 1,
    }
}

fn head(collection: Uuid, generation: u64) -> HeadHint {
    HeadHint { collection, generation, root: [generation as u8; 32], sequence: generation * 10 }
}

fn dirty(collection: Uuid, sequence: u64) -> DirtyHint {
    DirtyHint { collection, sequence, rows: sequence * 3, bytes: sequence * 100 }
}

/// A release may take a moment to arrive.
async fn eventually<T, F>(mut ask: impl FnMut() -> F) -> T
where
    F: Future<Output = crate::Result<Option<T>>>,
{
    for _ in 0..50 {
        if let Some(found) = ask().await.unwrap() {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("did not happen in time");
}

async fn next<T: Watched>(watch: &mut Watch<T>) -> WatchEvent<T> {
    let event = tokio::time::timeout(Duration::from_secs(10), watch.next()).await;
    event.expect("no event in time").expect("the watch ended")
}

async fn expect_reset<T: Watched>(watch: &mut Watch<T>) -> Vec<T> {
    match next(watch).await {
        WatchEvent::Reset(all) => all,
        _ => panic!("a watch begins with everything there is"),
    }
}

async fn expect_put<T: Watched + PartialEq>(watch: &mut Watch<T>, wanted: &T) {
    loop {
        match next(watch).await {
            WatchEvent::Put(got) if got == *wanted => return,
            WatchEvent::Reset(all) if all.contains(wanted) => return,
            // Others may use the backend, and intermediate states may be told.
            _ => {}
        }
    }
}

async fn expect_gone<T: Watched>(watch: &mut Watch<T>, wanted: &T::Key) {
    loop {
        match next(watch).await {
            WatchEvent::Gone(key) if key == *wanted => return,
            WatchEvent::Reset(all) if all.iter().all(|t| t.key() != *wanted) => return,
            _ => {}
        }
    }
}
