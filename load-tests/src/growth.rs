//! Phase `growth`: the first build of five sixths of the rows, then twenty checkpoints of a hundredth each; what these cost beside
//! the first build (time) and beside the index (bytes). Once with new rows, once with new rows and new versions in halves.

use std::fs;

use anyhow::Result;
use pando_store::ObjectKind;
use serde_json::json;

use crate::arguments::Common;
use crate::data;
use crate::engine::{Bench, NAME};
use crate::machine::{self, Stopwatch};
use crate::npy::Matrix;
use crate::report::{emit, round};

/// Checkpoints over which is averaged.
const ROUNDS: usize = 20;

pub fn run(args: &Common) -> Result<()> {
    let base = data::base(args)?;
    for (step, replaced) in [("new 1%", false), ("new and replaced 1%", true)] {
        measure(args, &base, step, replaced)?;
    }
    Ok(())
}

fn measure(args: &Common, base: &Matrix<f32>, step: &str, replaced: bool) -> Result<()> {
    let index = data::index(args).with_extension("growth");
    let _ = fs::remove_dir_all(&index);
    let bench = Bench::open(args, &index)?;
    bench.create(args, base.columns)?;
    let (dim, first) = (base.columns, base.rows() * 5 / 6);
    let ids: Vec<u64> = (0..first as u64).collect();
    bench.ingest(&ids, &base.values[..first * dim], dim, args.batch_rows)?;
    let watch = Stopwatch::start();
    bench.compact()?;
    let (build, build_cpu) = watch.seconds();
    let (mut wall, mut cpu, mut slowest, mut share) = (0.0, 0.0, 0.0_f64, 0.0);
    let hundredth = first / 100;
    for at in 0..ROUNDS {
        let from = first + at * hundredth;
        // Every second row takes the place of an old one, spread over all that were there at first.
        let id = |i: usize| match replaced && i % 2 == 1 {
            true => (at * hundredth + i) * 7919 % first,
            false => from + i,
        };
        let ids: Vec<u64> = (0..hundredth).map(|i| id(i) as u64).collect();
        bench.ingest(&ids, &base.values[from * dim..(from + hundredth) * dim], dim, args.batch_rows)?;
        let before = (bench.store.counters(), bench.wait(bench.engine.describe(NAME))?.index_bytes);
        let watch = Stopwatch::start();
        bench.compact()?;
        let (w, c) = watch.seconds();
        let since = bench.store.counters().since(&before.0);
        let written: u64 = [ObjectKind::Pack, ObjectKind::Segment, ObjectKind::Root]
            .iter()
            .map(|kind| since.of(*kind).bytes_written)
            .sum();
        wall += w / ROUNDS as f64;
        cpu += c / ROUNDS as f64;
        slowest = slowest.max(c);
        share += written as f64 / before.1 as f64 / ROUNDS as f64;
    }
    bench.close();
    fs::remove_dir_all(&index)?;
    emit(
        args,
        json!({
            "kind": "growth", "dataset": data::name(args), "step": step, "n": first, "d": dim, "rounds": ROUNDS,
            "build_s": round(build, 3), "build_cpu_s": round(build_cpu, 3),
            "checkpoint_s": round(wall, 3), "checkpoint_cpu_s": round(cpu, 3), "slowest_cpu_s": round(slowest, 3),
            "of_build": round(wall / build, 4), "of_build_cpu": round(cpu / build_cpu, 4),
            "written_of_index": round(share, 4), "load1": machine::load1(),
        }),
    )
}
