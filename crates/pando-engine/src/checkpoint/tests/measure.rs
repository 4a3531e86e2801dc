//! Memory of checkpoints, by command: `cargo test -p pando-engine --release --lib -- --ignored measure_memory --nocapture`.

use std::sync::Arc;
use std::time::Instant;

use pando_format::RecordId;
use pando_kernels::Metric;
use pando_store::{Store, StoreOptions};

use super::MIB;
use super::harness::{Log, Numbers, Op, around, config};
use crate::api::Progress;
use crate::checkpoint::Surroundings;

/// Prints when a stage begins.
fn stages(store: Store) -> Arc<dyn Fn(Progress) + Send + Sync> {
    let last =
        parking_lot::Mutex::new((String::new(), Instant::now(), cpu_seconds(), store.counters().total()));
    Arc::new(move |p: Progress| {
        let mut last = last.lock();
        if last.0 != p.stage {
            let (cpu, total) = (cpu_seconds(), store.counters().total());
            println!(
                "  {} took {:?}, {:.1} s of CPU, {} reads of {} MB, peak {} MB",
                last.0,
                last.1.elapsed(),
                cpu - last.2,
                total.gets - last.3.gets,
                (total.bytes_read - last.3.bytes_read) / 1_000_000,
                peak_memory()
            );
            *last = (p.stage, Instant::now(), cpu, total);
        }
    })
}

/// Seconds of CPU that this process has used.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks: Vec<u64> = stat.split_whitespace().skip(13).take(2).filter_map(|n| n.parse().ok()).collect();
    ticks.iter().sum::<u64>() as f64 / 100.0
}

/// Peak resident memory of this process in MB.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap_or("VmHWM: 0 kB");
    line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0) / 1024
}

/// `PANDO_ROWS` generated rows of 384 dimensions within `PANDO_MEMORY` MiB.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "figures, by command"]
async fn measure_memory() {
    let number = |name: &str, or: u64| std::env::var(name).map_or(or, |n| n.parse::<u64>().unwrap());
    let (rows, memory) = (number("PANDO_ROWS", 300_000), number("PANDO_MEMORY", 128) * MIB);
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open_local(dir.path(), StoreOptions::default()).unwrap();
    let mut cfg = config(384, Metric::Cosine);
    cfg.small_limit = 10_000;
    let mut log = Log::new(store, cfg);
    let around = Surroundings { progress: stages(log.store.clone()), ..around(&log, 2, memory) };
    let mut numbers = Numbers::new(1);
    let mut fill = async |log: &mut Log, from: u64, to: u64| {
        for start in (from..to).step_by(2_000) {
            let record = |i| (RecordId::U64(i), numbers.vector(384, 5_000));
            log.write(vec![Op::Upsert((start..to.min(start + 2_000)).map(record).collect())]).await;
            log.model.clear();
        }
    };
    fill(&mut log, 0, rows).await;
    println!("{rows} rows written, peak {} MB", peak_memory());
    for round in 0..4 {
        let started = Instant::now();
        let manifest = log.checkpoint(&around).await;
        println!(
            "checkpoint {round}: {:?}, peak {} MB, {} leaves, index {} MB, segments {} MB",
            started.elapsed(),
            peak_memory(),
            manifest.leaf_count(),
            manifest.index_bytes() / 1_000_000,
            manifest.segment_bytes() / 1_000_000
        );
        fill(&mut log, rows + round * rows / 100, rows + (round + 1) * rows / 100).await;
    }
    let root = log.head.as_ref().unwrap().root.unwrap();
    let started = Instant::now();
    let report = crate::verify::verify(&around, root.depth, root.root).await.unwrap();
    assert!(report.ok, "{:?}", report.problems);
    println!("verify {:?}, peak {} MB, {} blocks", started.elapsed(), peak_memory(), report.blocks);
}
