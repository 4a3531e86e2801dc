//! Phase `search`: opens an index and sweeps efforts.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use pando_engine::api::{CreateCollection, Effort, QueryAnswer, Work};
use serde_json::{Value, json};

use crate::arguments::{Common, effort_name};
use crate::data::{self, Queries};
use crate::engine::{Bench, NAME, ids, only, request};
use crate::machine::{self, Stopwatch};
use crate::report::{emit, round};

/// Recall targets of a sweep.
const TARGETS: [f32; 14] =
    [0.80, 0.85, 0.90, 0.92, 0.94, 0.95, 0.96, 0.97, 0.98, 0.985, 0.99, 0.995, 0.998, 0.999];
/// What a client asks for unless told otherwise.
const DEFAULT: f32 = 0.95;
/// Queries before each point, for at most so long.
const WARM_QUERIES: usize = 20;
const WARM: Duration = Duration::from_millis(300);
/// Queries of a point at least, for at most three budgets.
const LEAST: usize = 100;
/// Above this recall a sweep ends.
const ENOUGH: f64 = 0.9985;

pub fn run(args: &Common) -> Result<()> {
    let cpus = machine::cpus();
    let queries = data::queries(args)?;
    let index = data::index(args);
    let rss_before = machine::status_mb("VmRSS");
    let start = Instant::now();
    let bench = Bench::open(args, &index)?;
    let first = request(queries.vectors.row(0), 10, Effort::RecallTarget(DEFAULT));
    bench.wait(bench.engine.query_here(first.clone()))?;
    let first_answer = start.elapsed();
    bench.warm()?;
    let warm = start.elapsed();
    let settings = format!("cache_memory={} copies/refine as built", args.cache_memory);
    emit(
        args,
        json!({
            "kind": "open", "dataset": data::name(args), "first_answer_s": round(first_answer.as_secs_f64(), 4),
            "open_s": round(warm.as_secs_f64(), 4), "rss_before_mb": round(rss_before, 1), "settings": settings,
            "version": env!("CARGO_PKG_VERSION"), "simd": bench.engine.environment().kernels.simd().to_string(),
        }),
    )?;
    let efforts: Vec<Effort> = match args.efforts.is_empty() {
        true => TARGETS.iter().map(|target| Effort::RecallTarget(*target)).collect(),
        false => args.efforts.clone(),
    };
    for &(k, effort) in &args.points {
        point(args, &bench, &queries, &cpus, k, effort)?;
    }
    let sweep = if args.points.is_empty() { args.k.as_slice() } else { &[] };
    for &k in sweep {
        let mut enough = [false; 2];
        for &effort in &efforts {
            let family = usize::from(matches!(effort, Effort::Leaves(_)));
            if enough[family] && effort != Effort::RecallTarget(DEFAULT) {
                continue;
            }
            let recall = point(args, &bench, &queries, &cpus, k, effort)?;
            enough[family] |= recall >= ENOUGH;
        }
    }
    let rss = machine::status_mb("VmRSS");
    emit(
        args,
        json!({
            "kind": "rss", "dataset": data::name(args), "peak_rss_mb": round(machine::status_mb("VmHWM"), 1),
            "rss_mb": round(rss, 1), "rss_before_mb": round(rss_before, 1),
        }),
    )?;
    bench.close();
    if args.call_cost {
        machine::pin(&cpus, 1);
        emit(
            args,
            json!({ "kind": "call", "dataset": data::name(args), "empty_call_us": call_cost(args)? }),
        )?;
    }
    Ok(())
}

/// Microseconds of a search in a collection of one record, beside the index that is measured.
fn call_cost(args: &Common) -> Result<f64> {
    let folder = data::index(args).with_extension("empty");
    let _ = std::fs::remove_dir_all(&folder);
    let bench = Bench::open(args, &folder)?;
    let vector = [1.0, 2.0, 3.0, 4.0];
    bench.wait(bench.engine.create_collection(CreateCollection::new(NAME, 4, args.metric)))?;
    bench.ingest(&[0], &vector, 4, 1)?;
    bench.compact()?;
    let mut times = Vec::new();
    bench.runtime.block_on(async {
        for _ in 0..1000 {
            let sent = Instant::now();
            bench.engine.query_here(request(&vector, 1, Effort::default())).await?;
            times.push(sent.elapsed());
        }
        Ok::<_, anyhow::Error>(())
    })?;
    bench.close();
    std::fs::remove_dir_all(&folder)?;
    times.sort();
    Ok(round(times[times.len() / 2].as_secs_f64() * 1e6, 2))
}

/// Measures one effort; gives its recall.
fn point(
    args: &Common,
    bench: &Bench,
    queries: &Queries,
    cpus: &[usize],
    k: usize,
    effort: Effort,
) -> Result<f64> {
    machine::pin(cpus, 1);
    let mut recall = 0.0;
    for pool in [false, true] {
        if pool && !args.pool {
            continue;
        }
        let (answers, figures) = one_thread(args, bench, queries, k, effort, pool)?;
        let mode = if pool { "latency_pool" } else { "latency" };
        let mut row = line(args, mode, 1, k, effort, figures);
        let found: Vec<Vec<u64>> = answers.iter().map(ids).collect();
        let quality = data::quality(&found, &queries.truth, k);
        recall = quality["recall"].as_f64().unwrap_or_default();
        row.as_object_mut().expect("an object").extend(quality);
        row.as_object_mut().expect("an object").extend(work(&answers));
        emit(args, row)?;
    }
    machine::pin(cpus, cpus.len());
    if args.threads2 && recall >= 0.8 {
        let figures = many_threads(args, bench, queries, k, effort, cpus.len())?;
        emit(args, line(args, "throughput", cpus.len(), k, effort, figures))?;
    }
    Ok(recall)
}

fn line(args: &Common, mode: &str, threads: usize, k: usize, effort: Effort, figures: Value) -> Value {
    let mut row = json!({
        "kind": "point", "mode": mode, "threads": threads, "dataset": data::name(args),
        "metric": args.metric.to_string(), "k": k, "effort": effort_name(effort),
        "default": effort == Effort::RecallTarget(DEFAULT),
    });
    if let (Value::Object(row), Value::Object(figures)) = (&mut row, figures) {
        row.extend(figures);
    }
    row
}

/// One query after the other on this thread, which is bound to one CPU with all others of the process.
fn one_thread(
    args: &Common,
    bench: &Bench,
    queries: &Queries,
    k: usize,
    effort: Effort,
    pool: bool,
) -> Result<(Vec<QueryAnswer>, Value)> {
    let engine = &bench.engine;
    let ask = |at: usize| async move {
        let request = request(queries.vectors.row(at % queries.vectors.rows()), k, effort);
        match pool {
            true => engine.query(request).await,
            false => engine.query_here(request).await,
        }
    };
    let budget = Duration::from_secs_f64(args.budget);
    bench.runtime.block_on(async {
        let warming = Instant::now();
        for at in 0..WARM_QUERIES {
            ask(at).await?;
            if warming.elapsed() > WARM {
                break;
            }
        }
        let (mut answers, mut times) = (Vec::new(), Vec::new());
        let watch = Stopwatch::start();
        let start = Instant::now();
        for at in 0..queries.vectors.rows() {
            let sent = Instant::now();
            let answer = only(ask(at).await?)?;
            times.push(sent.elapsed());
            answers.push(answer);
            let spent = start.elapsed();
            if spent > 3 * budget || (spent > budget && times.len() >= LEAST) {
                break;
            }
        }
        let (wall, cpu) = watch.seconds();
        Ok((answers, figures(&mut times, wall, cpu)))
    })
}

fn figures(times: &mut [Duration], wall: f64, cpu: f64) -> Value {
    times.sort();
    let n = times.len();
    let at = |q: f64| times[((n - 1) as f64 * q).round() as usize].as_secs_f64() * 1e3;
    let mean = times.iter().sum::<Duration>().as_secs_f64() * 1e3 / n as f64;
    json!({
        "n": n, "qps": round(n as f64 / wall, 2), "mean_ms": round(mean, 4), "p50_ms": round(at(0.5), 4),
        "p99_ms": round(at(0.99), 4), "max_ms": round(at(1.0), 4),
        "cpu_us_per_query": round(cpu / n as f64 * 1e6, 1),
    })
}

/// Mean work of a query.
fn work(answers: &[QueryAnswer]) -> serde_json::Map<String, Value> {
    let n = answers.len().max(1) as f64;
    let mean =
        |part: fn(&Work) -> u64| round(answers.iter().map(|a| part(&a.work)).sum::<u64>() as f64 / n, 2);
    let row = json!({
        "leaves": mean(|w| w.leaves_scanned), "codes": mean(|w| w.codes_scanned),
        "refined": mean(|w| w.codes_refined), "reranked": mean(|w| w.vectors_reranked),
    });
    let Value::Object(row) = row else { unreachable!("a literal object") };
    row
}

/// Threads that each send one query after the other, for half a budget at least and every query once.
fn many_threads(
    args: &Common,
    bench: &Bench,
    queries: &Queries,
    k: usize,
    effort: Effort,
    threads: usize,
) -> Result<Value> {
    let until = Duration::from_secs_f64(args.budget * 0.4);
    let (next, rows) = (AtomicUsize::new(0), queries.vectors.rows());
    let watch = Stopwatch::start();
    let start = Instant::now();
    let done: Vec<Result<usize>> = std::thread::scope(|scope| {
        let client = || {
            bench.runtime.block_on(async {
                let mut done = 0;
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= rows.min(LEAST) && start.elapsed() > until {
                        return Ok(done);
                    }
                    bench.engine.query_here(request(queries.vectors.row(at % rows), k, effort)).await?;
                    done += 1;
                }
            })
        };
        let clients: Vec<_> = (0..threads).map(|_| scope.spawn(client)).collect();
        clients.into_iter().map(|client| client.join().expect("a client does not panic")).collect()
    });
    let (wall, cpu) = watch.seconds();
    let mut n = 0;
    for part in done {
        n += part?;
    }
    Ok(json!({
        "n": n, "qps": round(n as f64 / wall, 2), "cpu_us_per_query": round(cpu / n as f64 * 1e6, 1),
    }))
}
