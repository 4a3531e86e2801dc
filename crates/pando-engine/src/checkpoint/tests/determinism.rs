//! Law 3: the same log gives the same roots, whoever makes them and however often.

use std::sync::Arc;

use object_store::memory::InMemory;
use pando_format::RootId;
use pando_kernels::{Kernels, Metric, Simd};
use pando_store::{Store, StoreOptions};
use pando_testkit::{Failure, Fault, Faults, Rule};

use super::harness::{Log, Numbers, around, config};
use super::{GIB, MIB};
use crate::checkpoint::{CheckpointOutcome, Surroundings, run_checkpoint};

/// Writes the same rounds of changes to every log.
async fn round(log: &mut Log, round: u64, metric: Metric) {
    let mut numbers = Numbers::new(100 * round + metric as u64);
    let (entries, per_entry) = if round == 1 { (8, 1_200) } else { (2, 300) };
    log.churn(&mut numbers, entries, per_entry, 8_000).await;
}

async fn roots(metric: Metric, rounds: u64, make: impl Fn(&Log) -> Surroundings) -> Vec<RootId> {
    let mut log = Log::new(Store::in_memory(), config(16, metric));
    let around = make(&log);
    let mut out = Vec::new();
    for i in 0..rounds {
        round(&mut log, i, metric).await;
        log.checkpoint(&around).await;
        out.push(log.head.as_ref().unwrap().root.unwrap().root);
    }
    log.check(&around).await;
    out
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roots_do_not_depend_on_threads_memory_or_instructions() {
    for metric in [Metric::Cosine, Metric::Dot] {
        let expected = roots(metric, 5, |log| around(log, 2, GIB)).await;
        assert_eq!(expected, roots(metric, 5, |log| around(log, 1, 64 * MIB)).await, "one thread, 64 MiB");
        // So little that new rows are staged on storage, and blocks are written a few at a time.
        assert_eq!(expected, roots(metric, 5, |log| around(log, 2, MIB / 4)).await, "a quarter of a MiB");
        for kernels in Simd::ALL.into_iter().filter_map(|simd| Kernels::new(simd).ok()) {
            let with = |log: &Log| Surroundings { kernels, ..around(log, 2, GIB) };
            assert_eq!(expected, roots(metric, 5, with).await, "{kernels:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_and_raced_checkpoints_make_one_root() {
    let mut log = Log::new(Store::in_memory(), config(16, Metric::L2));
    let (one, two) = (around(&log, 1, MIB), around(&log, 2, GIB));
    for i in 0..4 {
        round(&mut log, i, Metric::L2).await;
        let before = log.head.clone();
        let (a, b) = tokio::join!(
            run_checkpoint(&one, before.as_ref(), log.sequence),
            run_checkpoint(&two, before.as_ref(), log.sequence),
        );
        let again = run_checkpoint(&two, before.as_ref(), log.sequence).await;
        let mut heads = Vec::new();
        for outcome in [a, b, again] {
            match outcome.unwrap() {
                CheckpointOutcome::Published(done) => heads.push(done.head),
                other => panic!("{other:?}"),
            }
        }
        assert!(heads.windows(2).all(|w| w[0] == w[1]));
        log.head = heads.pop();
        log.check(&one).await;
    }
    let idle = run_checkpoint(&one, log.head.as_ref(), 0).await.unwrap();
    assert!(matches!(idle, CheckpointOutcome::NothingToDo));
}

/// A store that fails on command and gives up at once.
fn failing() -> (Faults, Store) {
    let faults = Faults::new();
    let options = StoreOptions { read_attempts: 1, ..StoreOptions::default() };
    let store = Store::new(faults.wrap(Arc::new(InMemory::new())), "", None, options).unwrap();
    (faults, store)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkpoint_that_died_is_repeated_to_the_same_root() {
    let expected = roots(Metric::L2, 3, |log| around(log, 2, GIB)).await;
    for (applied, small) in [(false, false), (true, false), (false, true)] {
        let (faults, store) = failing();
        let mut log = Log::new(store, config(16, Metric::L2));
        let around = around(&log, 2, if small { MIB } else { GIB });
        for (i, expected) in expected.iter().enumerate() {
            round(&mut log, i as u64, Metric::L2).await;
            // Dies after 0, 1, 2, … requests, until it is through.
            let mut done = None;
            let mut after = 0;
            while done.is_none() {
                let fault = if applied {
                    Fault::FailAfter(Failure::Unavailable)
                } else {
                    Fault::FailBefore(Failure::Unavailable)
                };
                faults.add(Rule::new(fault).after(after));
                let outcome = run_checkpoint(&around, log.head.as_ref(), log.sequence).await;
                faults.heal();
                if let Ok(CheckpointOutcome::Published(finished)) = outcome {
                    done = Some(finished);
                }
                after += 1 + after / 8;
                assert!(after < 100_000, "{outcome_is}", outcome_is = "a checkpoint does not end");
            }
            let finished = done.unwrap();
            assert_eq!(finished.root, *expected);
            log.head = Some(finished.head);
            log.check(&around).await;
        }
    }
}
