//! Damage is found: every stored object of a root, flipped and cut.

use std::sync::Arc;

use object_store::ObjectStoreExt;
use object_store::memory::InMemory;
use object_store::path::Path;
use pando_format::{Deaths, Manifest, RootId, Stored};
use pando_kernels::Metric;
use pando_store::{Key, Store, StoreOptions};

use super::verify;
use crate::checkpoint::tests::harness::{Log, Numbers, around, config};

/// Keys of everything that the newest root reaches.
async fn reached(log: &Log) -> Vec<Key> {
    let root = log.head.as_ref().unwrap().root.unwrap();
    let io = log.io();
    let (manifest, _) = io.manifest(root.depth, &root.root).await.unwrap();
    let mut keys = vec![io.root_key(root.depth, &root.root)];
    keys.extend(manifest.packs.iter().map(|p| io.pack_key(&p.object)));
    keys.extend(manifest.segments.iter().map(|s| io.segment_key(&s.object)));
    keys
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_to_any_object_is_reported() {
    let objects = Arc::new(InMemory::new());
    let options = StoreOptions { read_attempts: 1, ..StoreOptions::default() };
    let store = Store::new(objects.clone(), "", None, options).unwrap();
    let mut log = Log::new(store, config(16, Metric::L2));
    let around = around(&log, 2, 8 << 20);
    let mut numbers = Numbers::new(11);
    for round in 0..4 {
        log.churn(&mut numbers, if round == 1 { 6 } else { 2 }, 400, 4_000).await;
        log.checkpoint(&around).await;
    }
    log.check(&around).await;
    let root = log.head.as_ref().unwrap().root.unwrap();
    let mut tried = 0;
    for key in reached(&log).await {
        let path = Path::from(key.path());
        let good = objects.get(&path).await.unwrap().bytes().await.unwrap();
        let mut places: Vec<usize> = (0..12).map(|_| numbers.below(good.len() as u64) as usize).collect();
        places.extend([0, 5, 70, good.len() - 1]);
        for place in places.into_iter().filter(|p| *p < good.len()) {
            let mut bad = good.to_vec();
            bad[place] ^= 1 << (place % 8);
            objects.put(&path, bad.into()).await.unwrap();
            let report = verify(&around, root.depth, root.root).await.unwrap();
            assert!(!report.ok, "{key} byte {place} of {}", good.len());
            tried += 1;
        }
        let cut = numbers.below(good.len() as u64) as usize;
        objects.put(&path, good.slice(..cut).into()).await.unwrap();
        let report = verify(&around, root.depth, root.root).await.unwrap();
        assert!(!report.ok, "{key} cut to {cut} of {}", good.len());
        objects.delete(&path).await.unwrap();
        let report = verify(&around, root.depth, root.root).await.unwrap();
        assert!(!report.ok, "{key} deleted");
        assert!(report.problems.iter().all(|p| !p.contains('/')), "{:?}", report.problems);
        objects.put(&path, good.into()).await.unwrap();
    }
    assert!(tried > 50);
    assert!(verify(&around, root.depth, root.root).await.unwrap().ok);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_root_that_does_not_tell_the_truth_is_found_out() {
    let mut log = Log::new(Store::in_memory(), config(16, Metric::Cosine));
    let around = around(&log, 2, 8 << 20);
    let mut numbers = Numbers::new(12);
    for round in 0..3 {
        log.churn(&mut numbers, if round == 1 { 6 } else { 2 }, 400, 3_000).await;
        log.checkpoint(&around).await;
    }
    let root = log.head.as_ref().unwrap().root.unwrap();
    let (good, _) = log.io().manifest(root.depth, &root.root).await.unwrap();
    assert!(good.counts.dead > 0 && good.segments.len() > 1);
    type Lie = (&'static str, fn(&mut Manifest));
    let lies: [Lie; 10] = [
        ("a live row more", |m| {
            m.counts.live += 1;
            m.counts.primaries += 1;
        }),
        ("another set of live rows", |m| {
            m.fingerprints.live = m.fingerprints.live.wrapping_add(1);
            m.fingerprints.primaries = m.fingerprints.primaries.wrapping_add(1);
        }),
        ("other secondaries", |m| m.fingerprints.secondaries ^= 1),
        ("no deaths", |m| m.deaths = Deaths::default()),
        ("no ids", |m| m.id_runs.clear()),
        ("a segment less", |m| m.segments.truncate(m.segments.len() - 1)),
        ("a pack less", |m| m.packs.truncate(m.packs.len() - 1)),
        ("more live bytes", |m| m.packs[0].live_bytes -= 1),
        ("another mean", |m| {
            if let Some(tree) = &mut m.tree {
                tree.mean[0] += 0.25;
            }
        }),
        ("another seed", |m| m.config.seed += 1),
    ];
    for (what, lie) in lies {
        let mut manifest = good.clone();
        lie(&mut manifest);
        let bytes = manifest.encode().unwrap();
        let id = RootId::of(&bytes);
        log.store.put_content_addressed(&log.io().root_key(root.depth, &id), bytes.into()).await.unwrap();
        let report = verify(&around, root.depth, id).await.unwrap();
        assert!(!report.ok, "{what}");
    }
}
