//! Phase `updates`: upserts of 1, 10 and 100 % of the rows and deletes of 1 %, on a copy of an index, each followed by a
//! checkpoint; and how soon a batch of 1,000 rows is found.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use pando_engine::api::{Effort, RecordId};
use pando_kernels::Metric;
use serde_json::{Map, Value, json};

use crate::arguments::{Common, effort_name};
use crate::data;
use crate::engine::{Bench, NAME, ids, only, request};
use crate::machine::{self, Stopwatch};
use crate::npy::Matrix;
use crate::report::{emit, round};
use crate::truth;

/// Queries that recall is measured with.
const QUERIES: usize = 200;
/// Of large sets: the true neighbours are found anew after each step.
const FEW_QUERIES: usize = 40;
const LARGE: usize = 200_000_000;
/// Rows asked for by their own new vector.
const PROBES: usize = 50;
/// Rows of a small batch, and how many such batches are timed.
const SMALL: usize = 1000;
const SMALL_BATCHES: usize = 20;

pub fn run(args: &Common) -> Result<()> {
    let (mut rows, mut queries) = (data::base(args)?, data::queries(args)?.vectors);
    queries.truncate(if rows.values.len() > LARGE { FEW_QUERIES } else { QUERIES });
    let index = data::index(args);
    let copy = index.with_extension("updates");
    let _ = fs::remove_dir_all(&copy);
    machine::copy_folder(&index, &copy)?;
    let bench = Bench::open(args, &copy)?;
    bench.warm()?;
    let effort = args.efforts.first().copied().unwrap_or_default();
    let mut state =
        State { args, bench: &bench, queries, effort, dead: vec![false; rows.rows()], random: Random(7) };

    let mut line = state.recall(&rows, "now")?;
    line.insert("step".into(), json!("before"));
    state.emit(line)?;
    small_batches(&mut state, &mut rows, &copy)?;
    for percent in [1, 10, 100] {
        let n = (rows.rows() * percent / 100).max(1);
        let chosen = state.choose(rows.rows(), n);
        let mut vectors = Vec::with_capacity(n * rows.columns);
        for &row in &chosen {
            vectors.extend(state.random.near(args.metric, rows.row(row as usize)));
        }
        let watch = Stopwatch::start();
        bench.ingest(&chosen, &vectors, rows.columns, args.batch_rows)?;
        let (ack, ack_cpu) = watch.seconds();
        for (row, vector) in chosen.iter().zip(vectors.chunks_exact(rows.columns)) {
            let at = *row as usize * rows.columns;
            rows.values[at..at + rows.columns].copy_from_slice(vector);
        }
        let mut line = Map::new();
        line.insert("step".into(), json!(format!("upsert {percent}%")));
        line.insert("rows".into(), json!(n));
        line.insert("ack_s".into(), json!(round(ack, 3)));
        line.insert("ack_cpu_s".into(), json!(round(ack_cpu, 3)));
        line.insert("first_found".into(), json!(state.probe(&rows, &chosen)?));
        line.extend(state.recall(&rows, "dirty")?);
        state.checkpoint(&mut line)?;
        line.insert("found_after".into(), json!(state.probe(&rows, &chosen)?));
        line.extend(state.recall(&rows, "tidy")?);
        line.insert("disk_bytes".into(), json!(machine::disk_bytes(&copy)));
        state.emit(line)?;
    }
    let chosen = state.choose(rows.rows(), (rows.rows() / 100).max(1));
    let start = Instant::now();
    let gone = chosen.iter().map(|row| RecordId::U64(*row)).collect();
    bench.wait(bench.engine.delete_ids(NAME, gone, None))?;
    let ack = start.elapsed().as_secs_f64();
    chosen.iter().for_each(|row| state.dead[*row as usize] = true);
    let mut line = Map::new();
    line.insert("step".into(), json!("delete 1%"));
    line.insert("rows".into(), json!(chosen.len()));
    line.insert("ack_s".into(), json!(round(ack, 4)));
    line.extend(state.recall(&rows, "dirty")?);
    state.checkpoint(&mut line)?;
    line.extend(state.recall(&rows, "tidy")?);
    line.insert("disk_bytes".into(), json!(machine::disk_bytes(&copy)));
    line.insert("peak_rss_mb".into(), json!(round(machine::status_mb("VmHWM"), 1)));
    state.emit(line)?;
    bench.close();
    fs::remove_dir_all(&copy)?;
    Ok(())
}

struct State<'a> {
    args: &'a Common,
    bench: &'a Bench,
    queries: Matrix<f32>,
    effort: Effort,
    dead: Vec<bool>,
    random: Random,
}

impl State<'_> {
    fn emit(&self, line: Map<String, Value>) -> Result<()> {
        let mut all = Map::new();
        all.insert("kind".into(), json!("update"));
        all.insert("dataset".into(), json!(data::name(self.args)));
        all.insert("effort".into(), effort_name(self.effort));
        all.extend(line);
        emit(self.args, Value::Object(all))
    }

    /// `n` of `of` rows, ascending.
    fn choose(&mut self, of: usize, n: usize) -> Vec<u64> {
        let mut all: Vec<u64> = (0..of as u64).collect();
        for at in 0..n {
            let other = at + (self.random.next() % (of - at) as u64) as usize;
            all.swap(at, other);
        }
        all.truncate(n);
        all.sort_unstable();
        all
    }

    fn recall(&self, rows: &Matrix<f32>, tag: &str) -> Result<Map<String, Value>> {
        let near = truth::nearest(self.args.metric, rows, &self.dead, &self.queries, 10);
        let truth = Matrix { columns: 10, values: near.into_iter().flatten().collect() };
        let (mut answers, mut times) = (Vec::new(), Vec::new());
        for at in 0..self.queries.rows() {
            let start = Instant::now();
            let answer = self.bench.engine.query_here(request(self.queries.row(at), 10, self.effort));
            answers.push(ids(&only(self.bench.wait(answer)?)?));
            times.push(start.elapsed());
        }
        times.sort();
        let quality = data::quality(&answers, &truth, 10);
        let ghosts =
            answers.iter().flatten().filter(|id| self.dead.get(**id as usize).copied().unwrap_or(true));
        let mut out = Map::new();
        out.insert(format!("{tag}_recall10"), quality["recall"].clone());
        out.insert(format!("{tag}_p50_ms"), json!(round(times[times.len() / 2].as_secs_f64() * 1e3, 4)));
        out.insert(format!("{tag}_short"), quality["short"].clone());
        out.insert(format!("{tag}_ghosts"), json!(ghosts.count()));
        Ok(out)
    }

    /// How many rows are first when asked for by their own vector.
    fn probe(&mut self, rows: &Matrix<f32>, chosen: &[u64]) -> Result<String> {
        let n = PROBES.min(chosen.len());
        let mut found = 0;
        for _ in 0..n {
            let row = chosen[(self.random.next() % chosen.len() as u64) as usize];
            let answer = self.bench.engine.query_here(request(rows.row(row as usize), 10, self.effort));
            found += usize::from(ids(&only(self.bench.wait(answer)?)?).first() == Some(&row));
        }
        Ok(format!("{found}/{n}"))
    }

    fn checkpoint(&self, line: &mut Map<String, Value>) -> Result<()> {
        let watch = Stopwatch::start();
        self.bench.compact()?;
        let (wall, cpu) = watch.seconds();
        line.insert("optimize_s".into(), json!(round(wall, 3)));
        line.insert("optimize_cpu_s".into(), json!(round(cpu, 3)));
        self.bench.warm()
    }
}

/// Batches of 1,000 rows: from the call until a strong query finds a row of it, beside a plain write of as many bytes with
/// fsync, which is the least that a log write can take.
fn small_batches(state: &mut State<'_>, rows: &mut Matrix<f32>, folder: &Path) -> Result<()> {
    let (mut ack, mut found, mut plain) = (Vec::new(), Vec::new(), Vec::new());
    let n = SMALL.min(rows.rows());
    for round in 0..SMALL_BATCHES {
        let chosen = state.choose(rows.rows(), n);
        let mut vectors = Vec::with_capacity(n * rows.columns);
        for &row in &chosen {
            vectors.extend(state.random.near(state.args.metric, rows.row(row as usize)));
        }
        let path = folder.join(format!("plain-{round}"));
        let start = Instant::now();
        let mut file = fs::File::create(&path)?;
        file.write_all(bytemuck::cast_slice(&vectors))?;
        file.sync_all()?;
        plain.push(start.elapsed().as_secs_f64() * 1e3);
        fs::remove_file(&path)?;

        let start = Instant::now();
        state.bench.ingest(&chosen, &vectors, rows.columns, n)?;
        ack.push(start.elapsed().as_secs_f64() * 1e3);
        let last = &vectors[vectors.len() - rows.columns..];
        let answer = state.bench.engine.query_here(request(last, 10, state.effort));
        let seen = ids(&only(state.bench.wait(answer)?)?).first() == chosen.last();
        found.push(start.elapsed().as_secs_f64() * 1e3);
        anyhow::ensure!(seen, "a strong query did not find a row that was written before it");
        for (row, vector) in chosen.iter().zip(vectors.chunks_exact(rows.columns)) {
            let at = *row as usize * rows.columns;
            rows.values[at..at + rows.columns].copy_from_slice(vector);
        }
    }
    let median = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        round(times[times.len() / 2], 3)
    };
    let mut line = Map::new();
    line.insert("step".into(), json!("batch of 1,000 rows until found"));
    line.insert("rows".into(), json!(n));
    line.insert("batches".into(), json!(SMALL_BATCHES));
    line.insert("ack_ms".into(), json!(median(&mut ack)));
    line.insert("found_ms".into(), json!(median(&mut found)));
    line.insert("plain_write_ms".into(), json!(median(&mut plain)));
    state.emit(line)
}

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Of mean 0 and variance 1, near enough to normal.
    fn normal(&mut self) -> f32 {
        let sum: f32 = (0..4).map(|_| (self.next() >> 40) as f32 / (1u64 << 24) as f32 - 0.5).sum();
        sum * 3f32.sqrt()
    }

    /// A vector at 0.6 of its length from `x`; of length 1 under cosine.
    fn near(&mut self, metric: Metric, x: &[f32]) -> Vec<f32> {
        let length = |x: &[f32]| x.iter().map(|v| v * v).sum::<f32>().sqrt();
        let noise: Vec<f32> = x.iter().map(|_| self.normal()).collect();
        let scale = 0.6 * length(x) / length(&noise).max(f32::MIN_POSITIVE);
        let mut out: Vec<f32> = x.iter().zip(noise).map(|(x, e)| x + scale * e).collect();
        if metric == Metric::Cosine {
            let length = length(&out);
            out.iter_mut().for_each(|v| *v /= length);
        }
        out
    }
}
