//! Figures, by command: `PANDO_MEASURE=<base.npy f16> cargo test -p pando-engine --release -- --ignored measure --nocapture`.

use std::sync::Arc;
use std::time::Instant;

use pando_format::RecordId;
use pando_kernels::Metric;
use pando_store::{ObjectKind, Store, StoreOptions};

use super::MIB;
use super::harness::{Log, Numbers, Op, around, config};
use crate::api::Progress;
use crate::checkpoint::Surroundings;

/// Rows of an .npy file of f16 in C order.
fn read_npy(path: &str) -> (usize, Vec<f32>) {
    let bytes = std::fs::read(path).unwrap();
    let header = u16::from_le_bytes([bytes[8], bytes[9]]) as usize;
    let text = String::from_utf8_lossy(&bytes[10..10 + header]).into_owned();
    let shape = text.split("'shape': (").nth(1).unwrap().split(')').next().unwrap();
    let dim = shape.split(',').nth(1).unwrap().trim().parse().unwrap();
    let f16 = |b: &[u8]| half(u16::from_le_bytes([b[0], b[1]]));
    (dim, bytes[10 + header..].chunks_exact(2).map(f16).collect())
}

fn half(bits: u16) -> f32 {
    let (sign, exp, frac) = (u32::from(bits >> 15), u32::from(bits >> 10 & 31), u32::from(bits & 1023));
    let magnitude = match exp {
        0 => frac as f32 / 16_777_216.0,
        _ => f32::from_bits((exp + 112) << 23 | frac << 13),
    };
    if sign == 1 { -magnitude } else { magnitude }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "figures, by command"]
async fn measure_growth_by_a_hundredth() {
    let (dim, values) = read_npy(&std::env::var("PANDO_MEASURE").unwrap());
    let memory = std::env::var("PANDO_MEMORY").map_or(1024, |m| m.parse::<u64>().unwrap()) * MIB;
    let rows = values.len() / dim;
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open_local(dir.path(), StoreOptions::default()).unwrap();
    let mut cfg = config(dim as u32, Metric::Cosine);
    cfg.small_limit = 10_000;
    let mut log = Log::new(store, cfg);
    let around = around(&log, 2, memory);
    let record = |i: usize| (RecordId::U64(i as u64), values[i * dim..(i + 1) * dim].to_vec());
    let first = rows * 5 / 6;
    for start in (0..first).step_by(2_000) {
        log.write(vec![Op::Upsert((start..first.min(start + 2_000)).map(record).collect())]).await;
    }
    let started = Instant::now();
    let manifest = log.checkpoint(&around).await;
    let build = started.elapsed();
    println!(
        "{first} rows x {dim}: build {build:?}, {} leaves, {} levels, index {} MB, segments {} MB",
        manifest.leaf_count(),
        manifest.levels(),
        manifest.index_bytes() / 1_000_000,
        manifest.segment_bytes() / 1_000_000
    );
    let step = first / 100;
    let (mut at, mut share, mut rounds) = (first, 0.0, 0);
    while at < rows && rounds < 20 {
        let end = rows.min(at + step);
        log.write(vec![Op::Upsert((at..end).map(record).collect())]).await;
        let before = around.store.counters();
        let started = Instant::now();
        let manifest = log.checkpoint(&around).await;
        let time = started.elapsed();
        let after = around.store.counters();
        let written = |kind| after.of(kind).bytes_written - before.of(kind).bytes_written;
        let packs = written(ObjectKind::Pack);
        let all = packs + written(ObjectKind::Segment) + written(ObjectKind::Root);
        share += all as f64 / manifest.index_bytes() as f64;
        rounds += 1;
        println!(
            "+{} rows: {time:?}, live {} MB, packs {:.2} MB, segments {:.2} MB, root {} KB, {:.1} % of index {} MB, {} leaves, {} packs, {} segments",
            end - at,
            manifest.packs.iter().map(|p| p.live_bytes).sum::<u64>() / 1_000_000,
            packs as f64 / 1e6,
            written(ObjectKind::Segment) as f64 / 1e6,
            written(ObjectKind::Root) / 1000,
            100.0 * all as f64 / manifest.index_bytes() as f64,
            manifest.index_bytes() / 1_000_000,
            manifest.leaf_count(),
            manifest.packs.len(),
            manifest.segments.len()
        );
        at = end;
    }
    println!("mean {:.1} % of the index written", 100.0 * share / f64::from(rounds));
    let started = Instant::now();
    log.check(&around).await;
    println!("verify and check {:?}", started.elapsed());
}

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
