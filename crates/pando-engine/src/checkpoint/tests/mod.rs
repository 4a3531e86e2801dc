//! Checkpoints against a model.

mod determinism;
mod growth;
pub(crate) mod harness;
mod measure;
mod total;

use pando_kernels::Metric;
use pando_store::Store;

use self::harness::{Log, Numbers, Op, around, config};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_root_of_a_few_rows() {
    let mut log = Log::new(Store::in_memory(), config(8, Metric::L2));
    let mut numbers = Numbers::new(1);
    log.churn(&mut numbers, 3, 20, 50).await;
    let around = around(&log, 2, 64 * MIB);
    let manifest = log.checkpoint(&around).await;
    assert_eq!(manifest.leaf_count(), 1);
    assert_eq!((manifest.packs.len(), manifest.segments.len()), (1, 1));
    log.check(&around).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_writes_over_many_checkpoints() {
    for (seed, metric) in [(1, Metric::L2), (2, Metric::Cosine), (3, Metric::Dot)] {
        let mut log = Log::new(Store::in_memory(), config(16, metric));
        let around = around(&log, 2, 64 * MIB);
        let mut numbers = Numbers::new(seed);
        for round in 0..12u64 {
            let (entries, per_entry, ids) =
                if round == 2 { (10, 900, 6_000) } else { (1 + round % 3, 200, 6_000) };
            log.churn(&mut numbers, entries, per_entry, ids).await;
            log.checkpoint(&around).await;
            log.check(&around).await;
        }
        let all = log.model.keys().cloned().collect();
        log.write(vec![Op::Delete(all)]).await;
        log.checkpoint(&around).await;
        log.check(&around).await;
        log.churn(&mut numbers, 1, 10, 10).await;
        log.checkpoint(&around).await;
        log.check(&around).await;
    }
}
