//! Phase `cold`: from the start of a process to its first answer.

use std::process::Command;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use pando_engine::api::Effort;
use serde_json::json;

use crate::arguments::Common;
use crate::data;
use crate::engine::{Bench, request};
use crate::machine;
use crate::report::{emit, round};

/// When the parent started this process, in nanoseconds since 1970.
const STARTED: &str = "PANDO_BENCH_STARTED";

fn now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos())
}

/// Starts a process with the page cache of the index dropped, and one with it kept.
pub fn run(args: &Common) -> Result<()> {
    let mut line: Vec<String> = std::env::args().skip(1).collect();
    line[0] = "cold-child".into();
    for cache in ["dropped", "warm"] {
        if cache == "dropped" {
            machine::evict(&data::index(args));
        }
        let mut child = Command::new(std::env::current_exe()?);
        let status = child.args(&line).args(["--cache", cache]).env(STARTED, now().to_string()).status()?;
        ensure!(status.success(), "cold: the child failed");
    }
    Ok(())
}

/// The fresh process.
pub fn child(args: &Common) -> Result<()> {
    let began: u128 = std::env::var(STARTED).ok().and_then(|t| t.parse().ok()).unwrap_or_else(now);
    // Reading the queries is the client's: it does not count.
    let reading = Instant::now();
    let queries = data::queries(args)?;
    let reading = reading.elapsed().as_secs_f64();
    let effort = args.efforts.first().copied().unwrap_or_default();
    let start = Instant::now();
    let bench = Bench::open(args, &data::index(args))?;
    let ask = |at: usize, effort: Effort| {
        let sent = Instant::now();
        bench.wait(bench.engine.query(request(queries.vectors.row(at), 10, effort)))?;
        Ok::<_, anyhow::Error>(sent.elapsed().as_secs_f64() * 1e3)
    };
    let open = start.elapsed().as_secs_f64();
    let first = ask(0, effort)?;
    let total = (now() - began) as f64 / 1e9 - reading;
    let total_of = bench.store.counters().total();
    let (gets, bytes) = (total_of.gets, total_of.bytes_read);
    let second = ask(1, effort)?;
    let third = ask(2, effort)?;
    emit(
        args,
        json!({
            "kind": "cold", "dataset": data::name(args), "cache": args.cache, "total_s": round(total, 4),
            "open_s": round(open, 4), "first_query_s": round(first / 1e3, 5), "second_query_s": round(second / 1e3, 5),
            "third_query_s": round(third / 1e3, 5), "requests_before_first_answer": gets,
            "bytes_before_first_answer": bytes, "peak_rss_mb": round(machine::status_mb("VmHWM"), 1),
            "note": "requests and bytes include memory being filled in the background",
        }),
    )?;
    bench.close();
    Ok(())
}
