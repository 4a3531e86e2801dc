//! Phase `build`: ingest and first checkpoint.

use std::fs;

use anyhow::Result;
use serde_json::json;

use crate::arguments::Common;
use crate::data;
use crate::engine::{Bench, NAME};
use crate::machine::{self, Stopwatch};
use crate::report::{emit, round};

pub fn run(args: &Common) -> Result<()> {
    let base = data::base(args)?;
    let index = data::index(args);
    if index.exists() {
        fs::remove_dir_all(&index)?;
    }
    let rss_before = machine::status_mb("VmRSS");
    let watch = Stopwatch::start();
    let bench = Bench::open(args, &index)?;
    bench.create(args, base.columns)?;
    let ids: Vec<u64> = (0..base.rows() as u64).collect();
    bench.ingest(&ids, &base.values, base.columns, args.batch_rows)?;
    let (ingest, ingest_cpu) = watch.seconds();
    let before = bench.store.counters();
    let checkpoint = Stopwatch::start();
    bench.compact()?;
    let (compact, compact_cpu) = checkpoint.seconds();
    let (wall, cpu) = watch.seconds();
    let written = bench.store.counters().since(&before).total().bytes_written;
    let about = bench.wait(bench.engine.describe(NAME))?;
    let raw = (base.values.len() * 4) as u64;
    let settings = format!("copies={} refine={}", args.copies, !args.no_refine);
    let kernels = bench.engine.environment().kernels.simd().to_string();
    let peak = machine::status_mb("VmHWM");
    bench.close();
    emit(
        args,
        json!({
            "kind": "build", "dataset": data::name(args), "metric": args.metric.to_string(),
            "version": env!("CARGO_PKG_VERSION"), "settings": settings, "note": format!("kernels {kernels}"), "meta": false,
            "n": base.rows(), "d": base.columns, "wall_s": round(wall, 2), "cpu_s": round(cpu, 2),
            "ingest_s": round(ingest, 3), "ingest_cpu_s": round(ingest_cpu, 3),
            "compact_s": round(compact, 3), "compact_cpu_s": round(compact_cpu, 3),
            "peak_rss_mb": round(peak, 1), "rss_before_mb": round(rss_before, 1),
            "disk_bytes": machine::disk_bytes(&index), "raw_bytes": raw, "index_bytes": about.index_bytes,
            "segment_bytes": about.segment_bytes, "leaves": about.leaves, "levels": about.levels,
            "checkpoint_bytes_written": written,
            "index_bytes_per_row": round(about.index_bytes as f64 / base.rows() as f64, 1),
        }),
    )
}
