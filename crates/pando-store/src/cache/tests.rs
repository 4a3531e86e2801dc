use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use proptest::prelude::*;
use tokio::sync::Semaphore;

use super::*;
use crate::error::ErrorKind;
use crate::keys::ObjectKind;

const KIB: usize = 1024;

fn key(n: u64) -> BlockKey {
    BlockKey { hash: *blake3::hash(&n.to_le_bytes()).as_bytes(), offset: n * 64 }
}

fn cache(budget: usize) -> BlockCache<u64> {
    BlockCache::new("test", budget as u64)
}

#[test]
fn what_was_kept_is_found() {
    let cache = cache(100 * KIB);
    assert!(cache.get(&key(1)).is_none());
    let inserted = cache.insert(key(1), 11, KIB);
    assert_eq!((*inserted, inserted.weight()), (11, KIB as u64));
    assert_eq!(*cache.get(&key(1)).unwrap(), 11);
    assert!(cache.get(&BlockKey { offset: 0, ..key(1) }).is_none(), "the offset is part of the key");
    assert_eq!(*cache.insert(key(1), 12, KIB), 11, "the first stays");
    drop(inserted);
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses, stats.entries), (1, 2, 1));
    assert_eq!((stats.kept_bytes, stats.live_bytes), (KIB as u64, KIB as u64));

    cache.remove(&key(1));
    cache.remove(&key(1));
    assert!(cache.get(&key(1)).is_none());
    assert_eq!(cache.stats().live_bytes, 0);
    // A key that was removed and comes back is one entry, not two.
    for n in 0..3 {
        cache.insert(key(1), n, KIB);
        cache.remove(&key(1));
    }
    cache.insert(key(1), 9, KIB);
    for n in 10..200 {
        cache.insert(key(n), n, KIB);
    }
    assert!(cache.stats().kept_bytes <= 100 * KIB as u64);
    cache.clear();
    assert_eq!(cache.stats().kept_bytes, 0);
    assert_eq!(cache.stats().live_bytes, 0);
}

#[test]
fn a_block_over_the_budget_is_served_and_not_kept() {
    let cache = cache(10 * KIB);
    cache.insert(key(1), 1, KIB);
    let big = cache.insert(key(2), 2, 11 * KIB);
    assert_eq!(*big, 2);
    assert!(cache.get(&key(2)).is_none());
    assert!(cache.get(&key(1)).is_some(), "nothing was evicted for it");
    assert_eq!(cache.stats().live_bytes, 12 * KIB as u64);
    drop(big);
    assert_eq!(cache.stats().live_bytes, KIB as u64);

    let none = BlockCache::<u64>::new("test", 0);
    assert_eq!(*none.insert(key(1), 1, 1), 1);
    assert_eq!(none.stats().entries, 0, "a budget of nothing keeps nothing, not even empty blocks");
}

#[test]
fn a_scan_does_not_drive_out_what_is_used() {
    let cache = cache(1000 * KIB);
    for n in 0..500 {
        cache.insert(key(n), n, KIB);
        cache.get(&key(n));
    }
    // Ten times the budget, each block seen once.
    for n in 10_000..20_000 {
        cache.insert(key(n), n, KIB);
    }
    let hot = (0..500).filter(|n| cache.get(&key(*n)).is_some()).count();
    assert!(hot > 450, "{hot} of 500 survived the scan");
}

#[test]
fn what_comes_back_soon_is_kept_longer() {
    let cache = cache(100 * KIB);
    for n in 0..150 {
        cache.insert(key(n), n, KIB);
    }
    let evicted = (0..150).filter(|n| !cache.contains(&key(*n))).max().unwrap();
    cache.insert(key(evicted), evicted, KIB);
    for n in 1000..1095 {
        cache.insert(key(n), n, KIB);
    }
    assert!(cache.contains(&key(evicted)));
}

#[test]
fn blocks_in_use_are_spared_and_accounted() {
    let cache = cache(100 * KIB);
    let used: Vec<_> = (0..20).map(|n| cache.insert(key(n), n, KIB)).collect();
    for n in 1000..1200 {
        cache.insert(key(n), n, KIB);
    }
    let stats = cache.stats();
    assert!(
        stats.live_bytes <= 100 * KIB as u64,
        "blocks in use and blocks kept share the budget: {stats:?}"
    );
    let here = (0..20).filter(|n| cache.contains(&key(*n))).count();
    assert!(here >= 15, "evicting what is in use frees nothing: {here} of 20 are kept");
    assert!(used.iter().enumerate().all(|(n, block)| **block == n as u64), "handles stay good");

    // More in use than fits: half of the budget goes on working.
    let many: Vec<_> = (2000..2300).map(|n| cache.insert(key(n), n, KIB)).collect();
    let stats = cache.stats();
    assert!(stats.kept_bytes >= 40 * KIB as u64 && stats.kept_bytes <= 100 * KIB as u64, "{stats:?}");
    assert!(stats.live_bytes >= 300 * KIB as u64, "what is in use is not hidden: {stats:?}");
    drop((many, used));
    let stats = cache.stats();
    assert_eq!(stats.live_bytes, stats.kept_bytes);
}

#[test]
fn a_smaller_budget_takes_effect_at_once() {
    let cache = cache(100 * KIB);
    for n in 0..100 {
        cache.insert(key(n), n, KIB);
    }
    cache.set_budget(10 * KIB as u64);
    assert!(cache.stats().kept_bytes <= 10 * KIB as u64);
    cache.set_budget(100 * KIB as u64);
    for n in 0..100 {
        cache.insert(key(n), n, KIB);
    }
    assert!(cache.stats().kept_bytes > 90 * KIB as u64);
}

#[test]
fn shards_share_the_budget_out_whole() {
    for budget in [0, 1, 1 << 20, (64 << 20) + 7, 1 << 32, u64::MAX] {
        let cache = BlockCache::<u64>::new("test", budget);
        let n = cache.inner.slots.len() as u64;
        assert!(n.is_power_of_two() && n <= MAX_SHARDS);
        assert_eq!((0..n).map(|i| share(budget, n, i)).sum::<u64>(), budget);
    }
    // Keys spread over the shards.
    let cache = cache(64 << 20);
    let shards = cache.inner.slots.len();
    assert_eq!(shards, 4);
    (0..4000).for_each(|n| drop(cache.insert(key(n), n, 128)));
    for slot in &cache.inner.slots {
        assert!((800..1200).contains(&slot.blocks.read().len()));
    }
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u64, usize),
    Get(u64),
    Hold(u64),
    Release,
    Remove(u64),
    Budget(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        5 => (0..60u64, 0..40usize).prop_map(|(k, w)| Step::Insert(k, w * 512)),
        4 => (0..60u64).prop_map(Step::Get),
        1 => (0..60u64).prop_map(Step::Hold),
        1 => Just(Step::Release),
        1 => (0..60u64).prop_map(Step::Remove),
        1 => (0..300usize).prop_map(|kib| Step::Budget(kib * KIB)),
    ];
    prop::collection::vec(step, 1..200)
}

proptest! {
    /// Whatever happens: kept bytes within the budget, values right, accounts that close.
    #[test]
    fn the_budget_holds(steps in steps(), budget in 0..200usize) {
        let cache = cache(budget * KIB);
        let mut budget = (budget * KIB) as u64;
        let mut held = Vec::new();
        for step in steps {
            match step {
                Step::Insert(k, w) => prop_assert_eq!(*cache.insert(key(k), k, w), k),
                Step::Get(k) => {
                    if let Some(got) = cache.get(&key(k)) {
                        prop_assert_eq!(*got, k);
                    }
                }
                Step::Hold(k) => held.extend(cache.get(&key(k))),
                Step::Release => held.clear(),
                Step::Remove(k) => cache.remove(&key(k)),
                Step::Budget(b) => {
                    budget = b as u64;
                    cache.set_budget(budget);
                }
            }
            let stats = cache.stats();
            prop_assert!(stats.kept_bytes <= budget);
            prop_assert!(stats.live_bytes >= stats.kept_bytes);
        }
        held.clear();
        let stats = cache.stats();
        prop_assert_eq!(stats.live_bytes, stats.kept_bytes);
        cache.clear();
        prop_assert_eq!(cache.stats().live_bytes, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_load_serves_all_who_ask() {
    let cache = cache(100 * KIB);
    let (loads, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let askers: Vec<_> = (0..32)
        .map(|_| {
            let (cache, loads, gate) = (cache.clone(), Arc::clone(&loads), Arc::clone(&gate));
            tokio::spawn(async move {
                let load = || async move {
                    loads.fetch_add(1, Relaxed);
                    let _permit = gate.acquire().await.unwrap();
                    Ok((5, KIB))
                };
                *cache.get_or_load(key(1), load).await.unwrap()
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(30)).await;
    gate.add_permits(1);
    for asker in askers {
        assert_eq!(asker.await.unwrap(), 5);
    }
    assert_eq!(loads.load(Relaxed), 1);
    assert_eq!(cache.stats().loads, 1);
    assert!(cache.inner.slots[0].flights.lock().by_key.is_empty());
    assert_eq!(*cache.get_or_load(key(1), || async { panic!("it is here") }).await.unwrap(), 5);
}

#[tokio::test]
async fn a_failed_load_is_told_to_all_and_not_kept() {
    let cache = cache(100 * KIB);
    let load = || async { Err(StoreError::new(ErrorKind::Corrupt, ObjectKind::Pack, "bad")) };
    let (a, b) = tokio::join!(cache.get_or_load(key(1), load), cache.get_or_load(key(1), load));
    assert_eq!(a.unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(b.unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(*cache.get_or_load(key(1), || async { Ok((1, KIB)) }).await.unwrap(), 1);
}

#[tokio::test]
async fn a_load_goes_on_without_its_first_asker_and_stops_without_any() {
    let cache = cache(100 * KIB);
    let gate = Arc::new(Semaphore::new(0));
    let load = |gate: Arc<Semaphore>, value: u64| {
        move || async move {
            let _permit = gate.acquire().await.unwrap();
            Ok((value, KIB))
        }
    };
    let first = tokio::spawn({
        let (cache, gate) = (cache.clone(), Arc::clone(&gate));
        async move { cache.get_or_load(key(1), load(gate, 1)).await.map(|c| *c) }
    });
    tokio::task::yield_now().await;
    let second = tokio::spawn({
        let cache = cache.clone();
        async move { cache.get_or_load(key(1), || async { panic!("a second load") }).await.map(|c| *c) }
    });
    tokio::task::yield_now().await;
    first.abort();
    let _ = first.await;
    gate.add_permits(1);
    assert_eq!(second.await.unwrap().unwrap(), 1);

    // Everybody leaves: nothing is left on the board, and the next asker starts anew.
    let stuck = tokio::time::timeout(
        Duration::from_millis(10),
        cache.get_or_load(key(2), || async { std::future::pending().await }),
    );
    assert!(stuck.await.is_err());
    assert!(cache.inner.slots[0].flights.lock().by_key.is_empty());
    assert_eq!(*cache.get_or_load(key(2), || async { Ok((2, KIB)) }).await.unwrap(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_threads_keep_the_accounts_straight() {
    let cache = cache(200 * KIB);
    let tasks: Vec<_> = (0..8u64)
        .map(|t| {
            let cache = cache.clone();
            tokio::spawn(async move {
                for i in 0..3000u64 {
                    let n = mix(t * 7919 + i) % 400;
                    let got = cache.get_or_load(key(n), || async move { Ok((n, KIB)) }).await.unwrap();
                    assert_eq!(*got, n);
                    if i % 64 == 0 {
                        assert!(cache.stats().kept_bytes <= 200 * KIB as u64);
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let stats = cache.stats();
    assert_eq!(stats.live_bytes, stats.kept_bytes);
    assert_eq!(stats.kept_bytes, stats.entries * KIB as u64);
    assert!(stats.hits > 0 && stats.evictions > 0);
}
