//! `bench`: an honest load generator.
//!
//! Every client has a connection of its own and one query under way. First each query runs once: that warms the server and gives the
//! recall. Then follows the measured run.
//!
//! Without `--rate` the loop is closed: a client sends when its last answer came, so a stall of the server also stops the clients,
//! and the latencies are service times. With `--rate` the loop is open: a clock of its own says when each query is due, and its
//! latency counts from that moment, so that a stall is felt by every query that was due meanwhile (no coordinated omission).

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use pando_client::{Client, ConnectOptions, RetryPolicy, proto};
use serde_json::json;
use tokio::sync::{Mutex, mpsc};

use crate::cli;
use crate::files::vectors;
use crate::output::{Bar, Printer, count};

/// Exact search finds the true neighbours of at most so many queries.
const MOST_EXACT: usize = 1000;
/// Vectors of one exact call.
const EXACT_STEP: usize = 16;
/// How long queries that were due may still wait for their turn after the run.
const OVERTIME: Duration = Duration::from_secs(5);

/// What every client works with.
struct Plan {
    template: proto::QueryRequest,
    vectors: Vec<Vec<f32>>,
}

impl Plan {
    fn request(&self, number: usize) -> proto::QueryRequest {
        let vector = self.vectors[number % self.vectors.len()].clone();
        proto::QueryRequest { vectors: vec![vector.into()], ..self.template.clone() }
    }
}

/// The true neighbours of a query.
enum Truth {
    /// Their ids, best first.
    Ids(Vec<i64>),
    /// Their ids and the distance of the last: what ties with it is as true.
    Exact { ids: HashSet<String>, last: f64 },
}

impl Truth {
    /// Share of the true `k` among the matches.
    fn recall(&self, matches: &[proto::Match], k: usize) -> f64 {
        let id = |found: &proto::Match| found.record.as_ref().and_then(|record| record.id.clone());
        let (found, all) = match self {
            Self::Ids(ids) => {
                let truth: HashSet<i64> = ids.iter().take(k).copied().filter(|id| *id >= 0).collect();
                let found = matches.iter().take(k).filter(|found| match id(found).and_then(|id| id.kind) {
                    Some(proto::id::Kind::Number(number)) => {
                        i64::try_from(number).is_ok_and(|number| truth.contains(&number))
                    }
                    _ => false,
                });
                (found.count(), truth.len())
            }
            Self::Exact { ids, last } => {
                let found = matches.iter().filter(|found| {
                    found.distance <= *last || id(found).is_some_and(|id| ids.contains(&id.to_string()))
                });
                (found.count().min(ids.len()), ids.len())
            }
        };
        if all == 0 { 1.0 } else { found as f64 / all as f64 }
    }
}

/// What a client measured.
struct Tally {
    latencies: Histogram<u64>,
    errors: u64,
    first_error: Option<String>,
    work: [u64; 4],
}

impl Tally {
    fn new() -> Self {
        let latencies =
            Histogram::new_with_bounds(1, 3_600_000_000, 3).expect("the bounds are constants in range");
        Self { latencies, errors: 0, first_error: None, work: [0; 4] }
    }

    fn add(&mut self, since: Instant, result: Result<proto::QueryResponse, pando_client::Error>) {
        match result {
            Ok(response) => {
                self.latencies.saturating_record(since.elapsed().as_micros() as u64);
                let work = response.answers.first().and_then(|answer| answer.work).unwrap_or_default();
                let parts =
                    [work.leaves_scanned, work.codes_scanned, work.codes_refined, work.vectors_reranked];
                self.work.iter_mut().zip(parts).for_each(|(sum, part)| *sum += part);
            }
            Err(error) => {
                self.errors += 1;
                self.first_error.get_or_insert_with(|| error.to_string());
            }
        }
    }

    fn merge(&mut self, other: Self) -> Result<()> {
        self.latencies.add(other.latencies)?;
        self.errors += other.errors;
        self.first_error = self.first_error.take().or(other.first_error);
        self.work.iter_mut().zip(other.work).for_each(|(sum, part)| *sum += part);
        Ok(())
    }
}

pub async fn run(server: &str, args: &cli::Bench, printer: Printer) -> Result<()> {
    ensure!(args.seconds > 0.0 && args.seconds <= 86_400.0, "--seconds must be above 0 and at most 86400");
    ensure!(
        args.rate.is_none_or(|rate| rate > 0.0 && rate <= 1e6),
        "--rate must be above 0 and at most 1000000"
    );
    let vectors = vectors::load(&args.vectors.vectors, &args.vectors.vector_column)?;
    let options = ConnectOptions { retry: RetryPolicy::NEVER, ..ConnectOptions::default() };
    let mut clients = Vec::new();
    for _ in 0..args.concurrency {
        clients.push(Client::connect(server, options.clone()).await?);
    }
    let template = proto::QueryRequest {
        collection: args.name.clone(),
        top_k: args.vectors.top_k,
        effort: args.effort.to_proto(),
        ..Default::default()
    };
    let plan = Arc::new(Plan { template, vectors });

    let truth = truth(&clients[0], args, &plan).await?;
    let (recall, judged) = first_pass(&clients, &plan, truth, args).await?;
    let (tally, elapsed) = match args.rate {
        None => closed_loop(clients, &plan, args.seconds).await?,
        Some(rate) => open_loop(clients, &plan, args.seconds, rate).await?,
    };
    report(args, printer, &tally, elapsed, recall, judged);
    Ok(())
}

/// True neighbours: of the file, or by exact search.
async fn truth(client: &Client, args: &cli::Bench, plan: &Plan) -> Result<Vec<Truth>> {
    if let Some(path) = &args.truth {
        let rows = vectors::load_truth(path)?;
        ensure!(
            rows.len() == plan.vectors.len(),
            "{}: it has {} rows for {} queries; it must have one for each",
            path.display(),
            rows.len(),
            plan.vectors.len()
        );
        let k = args.vectors.top_k as usize;
        let width = rows.first().map_or(0, Vec::len);
        ensure!(width >= k, "{}: it has {width} neighbours a query, fewer than --top-k {k}", path.display());
        return Ok(rows.into_iter().map(Truth::Ids).collect());
    }
    let queries = &plan.vectors[..plan.vectors.len().min(MOST_EXACT)];
    let mut bar = Bar::new("exact search for the true neighbours", "queries", queries.len() as u64);
    let mut truth = Vec::new();
    for chunk in queries.chunks(EXACT_STEP) {
        let request = proto::QueryRequest {
            vectors: chunk.iter().map(|vector| vector.clone().into()).collect(),
            mode: proto::Mode::Exact.into(),
            effort: None,
            ..plan.template.clone()
        };
        for answer in client.query(request).await.context("exact search for the true neighbours")?.answers {
            let last = answer.matches.last().map_or(f64::NEG_INFINITY, |found| found.distance);
            let ids = answer.matches.into_iter().filter_map(|found| Some(found.record?.id?.to_string()));
            truth.push(Truth::Exact { ids: ids.collect(), last });
        }
        bar.set(truth.len() as u64, 0);
    }
    bar.finish();
    Ok(truth)
}

/// Runs every query once, as long as time allows; gives the mean recall and of how many queries.
async fn first_pass(
    clients: &[Client],
    plan: &Arc<Plan>,
    truth: Vec<Truth>,
    args: &cli::Bench,
) -> Result<(f64, usize)> {
    let until = Instant::now() + Duration::from_secs_f64(args.seconds.max(10.0));
    let truth = Arc::new(truth);
    let next = Arc::new(AtomicUsize::new(0));
    let k = args.vectors.top_k as usize;
    let tasks = clients.iter().cloned().map(|client| {
        let (plan, truth, next) = (plan.clone(), truth.clone(), next.clone());
        tokio::spawn(async move {
            let mut recalls = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= plan.vectors.len() || Instant::now() >= until {
                    return Ok::<_, pando_client::Error>(recalls);
                }
                let response = client.query_once(plan.request(number)).await?;
                if let (Some(truth), Some(answer)) = (truth.get(number), response.answers.first()) {
                    recalls.push(truth.recall(&answer.matches, k));
                }
            }
        })
    });
    let mut recalls = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        recalls.extend(task.await?.context("the first pass over the queries")?);
    }
    Ok((recalls.iter().sum::<f64>() / recalls.len().max(1) as f64, recalls.len()))
}

async fn closed_loop(clients: Vec<Client>, plan: &Arc<Plan>, seconds: f64) -> Result<(Tally, Duration)> {
    let next = Arc::new(AtomicUsize::new(0));
    let start = Instant::now();
    let until = start + Duration::from_secs_f64(seconds);
    let tasks = clients.into_iter().map(|client| {
        let (plan, next) = (plan.clone(), next.clone());
        tokio::spawn(async move {
            let mut tally = Tally::new();
            while Instant::now() < until {
                let request = plan.request(next.fetch_add(1, Ordering::Relaxed));
                let sent = Instant::now();
                let result = client.query_once(request).await;
                tally.add(sent, result);
            }
            tally
        })
    });
    gather(tasks.collect(), start).await
}

async fn open_loop(
    clients: Vec<Client>,
    plan: &Arc<Plan>,
    seconds: f64,
    rate: f64,
) -> Result<(Tally, Duration)> {
    // Timers of the runtime are a millisecond coarse; a thread that sleeps is on time.
    let (sender, due) = mpsc::unbounded_channel::<(usize, Instant)>();
    let start = Instant::now();
    let stop = Arc::new(AtomicBool::new(false));
    let clock = std::thread::spawn({
        let stop = stop.clone();
        move || {
            for number in 0.. {
                let after = Duration::from_secs_f64(number as f64 / rate);
                if after.as_secs_f64() >= seconds || stop.load(Ordering::Relaxed) {
                    return;
                }
                let due = start + after;
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                if sender.send((number, due)).is_err() {
                    return;
                }
            }
        }
    });
    let last = start + Duration::from_secs_f64(seconds) + OVERTIME;
    let due = Arc::new(Mutex::new(due));
    let tasks = clients.into_iter().map(|client| {
        let (plan, queue) = (plan.clone(), due.clone());
        tokio::spawn(async move {
            let mut tally = Tally::new();
            loop {
                let next = queue.lock().await.recv().await;
                let Some((number, due)) = next else { return tally };
                if Instant::now() > last {
                    tally.errors += 1;
                    tally.first_error.get_or_insert_with(|| {
                        "due, but never sent: the server is too slow for --rate".into()
                    });
                    continue;
                }
                let result = client.query_once(plan.request(number)).await;
                tally.add(due, result);
            }
        })
    });
    let result = gather(tasks.collect(), start).await;
    stop.store(true, Ordering::Relaxed);
    let _ = clock.join();
    result
}

async fn gather(tasks: Vec<tokio::task::JoinHandle<Tally>>, start: Instant) -> Result<(Tally, Duration)> {
    let mut all = Tally::new();
    for task in tasks {
        all.merge(task.await?)?;
    }
    Ok((all, start.elapsed()))
}

fn report(args: &cli::Bench, printer: Printer, tally: &Tally, elapsed: Duration, recall: f64, judged: usize) {
    if let Some(error) = &tally.first_error {
        eprintln!("the first of {} errors: {error}", tally.errors);
    }
    let queries = tally.latencies.len();
    let qps = queries as f64 / elapsed.as_secs_f64();
    let at = |quantile: f64| tally.latencies.value_at_quantile(quantile);
    let [leaves, codes, refined, reranked] = tally.work.map(|sum| sum as f64 / queries.max(1) as f64);
    printer.result(
        || {
            json!({
                "queries": queries,
                "qps": qps,
                "recall": recall,
                "p50_us": at(0.5),
                "p90_us": at(0.9),
                "p99_us": at(0.99),
                "p999_us": at(0.999),
                "max_us": tally.latencies.max(),
                "errors": tally.errors,
                "top_k": args.vectors.top_k,
                "concurrency": args.concurrency,
                "seconds": elapsed.as_secs_f64(),
                "loop": if args.rate.is_some() { "open" } else { "closed" },
                "rate": args.rate,
                "recall_queries": judged,
                "leaves_scanned": leaves,
                "codes_scanned": codes,
                "codes_refined": refined,
                "vectors_reranked": reranked,
            })
        },
        || {
            let ms = |quantile: f64| at(quantile) as f64 / 1000.0;
            let kind = match args.rate {
                Some(rate) => format!("open loop at {rate} queries/s; latency counts from when a query was due"),
                None => "closed loop; latency is service time, and says nothing about queues".into(),
            };
            format!(
                "{} queries in {:.1} s by {} clients: {qps:.0} queries/s, {} errors\n\
                 recall@{} {recall:.4} ({judged} queries)\n\
                 latency p50 {:.2} ms, p90 {:.2}, p99 {:.2}, p99.9 {:.2}, max {:.2} ({kind})\n\
                 a query scanned {leaves:.1} leaves and {codes:.0} codes, refined {refined:.0}, compared {reranked:.1} vectors",
                count(queries),
                elapsed.as_secs_f64(),
                args.concurrency,
                count(tally.errors),
                args.vectors.top_k,
                ms(0.5),
                ms(0.9),
                ms(0.99),
                ms(0.999),
                tally.latencies.max() as f64 / 1000.0,
            )
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(ids: &[(u64, f64)]) -> Vec<proto::Match> {
        let found = |(id, distance): &(u64, f64)| proto::Match {
            record: Some(proto::Record { id: Some((*id).into()), ..Default::default() }),
            distance: *distance,
        };
        ids.iter().map(found).collect()
    }

    #[test]
    fn recall_counts_the_true_neighbours_found() {
        let truth = Truth::Ids(vec![1, 2, 3, -1]);
        assert_eq!(truth.recall(&found(&[(1, 0.1), (9, 0.2)]), 2), 0.5);
        assert_eq!(
            truth.recall(&found(&[(1, 0.1), (2, 0.2), (3, 0.3), (4, 0.4)]), 4),
            1.0,
            "short rows end in -1"
        );
    }

    #[test]
    fn what_ties_with_the_last_true_neighbour_counts() {
        let truth = Truth::Exact { ids: HashSet::from(["1".into(), "2".into()]), last: 0.5 };
        assert_eq!(truth.recall(&found(&[(1, 0.1), (7, 0.5)]), 2), 1.0);
        assert_eq!(truth.recall(&found(&[(1, 0.1), (7, 0.6)]), 2), 0.5);
    }
}
