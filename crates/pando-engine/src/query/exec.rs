//! Runs searches: CPU work on its pool, loads on tokio, ranking and records at the end.

use std::sync::Arc;

use pando_tree::search::{DEFAULT_EPS0, Effort as TreeEffort, SearchParams, calibrate};
use parking_lot::Mutex;

use super::records::RecordReader;
use super::search::{Found, Need, Ranked, Scratch, SearchTask};
use crate::api::{Effort, Include, Match, Method, QueryAnswer, Token, Work};
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::root::RowVectors;
use crate::tail::{BodyRows, body_rows};
use crate::view::View;
use crate::workers::CpuPool;

/// Memory of searches that waits for the next query.
#[derive(Default)]
pub struct SearcherPool {
    // Boxed: it is large, and moves from the pool into a task and back.
    #[expect(clippy::vec_box)]
    idle: Mutex<Vec<Box<Scratch>>>,
}

/// Idle searchers kept.
const IDLE_SEARCHERS: usize = 32;

impl SearcherPool {
    fn take(&self) -> Box<Scratch> {
        self.idle.lock().pop().unwrap_or_default()
    }

    fn put(&self, scratch: Box<Scratch>) {
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_SEARCHERS {
            idle.push(scratch);
        }
    }
}

/// What all queries of one call share.
#[derive(Clone)]
pub struct Plan {
    /// View and position.
    pub view: Arc<View>,
    /// Last log entry seen.
    pub position: u64,
    /// Collection.
    pub token: Token,
    /// Number of results.
    pub top_k: usize,
    /// Effort of an approximate search.
    pub effort: Effort,
    /// Width of bounds.
    pub epsilon: Option<f32>,
    /// Compare with every row.
    pub exact: bool,
    /// What matches carry.
    pub include: Include,
    /// Where the CPU work of an approximate search runs.
    pub place: Place,
}

/// Where the CPU work of an approximate search runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// On the engine's pool: the caller's thread serves others meanwhile.
    #[default]
    Pool,
    /// On the thread that polls: no change of threads, but that thread is busy until the search has to load something.
    Caller,
}

/// Runs `work` on the CPU pool.
pub async fn on_cpu<T: Send + 'static>(
    pool: &CpuPool,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    pool.run(work).await
}

/// One query.
pub async fn search(env: &Environment, plan: &Plan, query: Vec<f32>) -> Result<QueryAnswer> {
    let started = env.clock.now();
    let (ranked, work) = match plan.exact {
        true => super::exact::search(env, plan, query).await?,
        false => approximate(env, plan, query).await?,
    };
    let matches = matches(env, plan, ranked).await?;
    Ok(QueryAnswer {
        matches,
        root: plan.view.root.as_ref().map(|root| root.id()),
        token: plan.token,
        complete: true,
        incomplete_reason: None,
        method: if plan.exact { Method::Exact } else { Method::Approximate },
        work,
        latency: env.clock.now().saturating_sub(started),
    })
}

/// Exact answers to many queries, with one pass over the rows.
pub async fn exact(env: &Environment, plan: &Plan, queries: Vec<Vec<f32>>) -> Result<Vec<QueryAnswer>> {
    let started = env.clock.now();
    let (found, measured) =
        super::exact::search_many(env, &plan.view, plan.position, Arc::new(queries), plan.top_k).await?;
    let mut out = Vec::with_capacity(found.len());
    for ranked in found {
        out.push(QueryAnswer {
            matches: matches(env, plan, ranked).await?,
            root: plan.view.root.as_ref().map(|root| root.id()),
            token: plan.token,
            complete: true,
            incomplete_reason: None,
            method: Method::Exact,
            work: Work { vectors_reranked: measured, ..Work::default() },
            latency: env.clock.now().saturating_sub(started),
        });
    }
    Ok(out)
}

/// How many leaves a search looks at.
fn effort(plan: &Plan) -> TreeEffort {
    match plan.effort {
        Effort::Leaves(leaves) => TreeEffort::Leaves(leaves as usize),
        Effort::RecallTarget(target) => {
            let root = plan.view.root.as_ref();
            let table = root.and_then(|root| root.margins());
            let live = root.map_or(0, |root| root.manifest().counts.live);
            calibrate::effort_for(table.as_ref(), plan.top_k, target, live)
        }
    }
}

async fn approximate(env: &Environment, plan: &Plan, query: Vec<f32>) -> Result<(Vec<Ranked>, Work)> {
    let eps0 = plan.epsilon.unwrap_or_else(|| match plan.effort {
        Effort::Leaves(_) => DEFAULT_EPS0,
        Effort::RecallTarget(target) => calibrate::eps0_for(target),
    });
    let params = SearchParams { k: plan.top_k, eps0, effort: effort(plan) };
    let scratch = env.searchers.take();
    let mut task = SearchTask::new(plan.view.clone(), plan.position, query, params, scratch);
    loop {
        let need = match plan.place {
            Place::Caller => task.run(),
            Place::Pool => {
                let (back, need) = env
                    .cpu
                    .run_short(move || {
                        let need = task.run();
                        (task, need)
                    })
                    .await?;
                task = back;
                need
            }
        };
        let root = plan.view.root.as_ref();
        match need {
            Need::Nothing => break,
            Need::Slots(wanted) => {
                let root = root.ok_or_else(|| Error::internal("a search asks for leaves without a root"))?;
                task.hold(root.load_slots(&wanted).await?)?;
            }
            Need::Vectors(rows) => {
                let root = root.ok_or_else(|| Error::internal("a search asks for rows without a root"))?;
                task.supply(root.load_vectors(&rows).await?);
            }
            Need::TailVectors(rows) => task.supply(tail_vectors(env, &plan.view, &rows).await?),
        }
    }
    let Found { ranked, counters, tail_rows, scratch } = task.finish();
    env.searchers.put(scratch);
    let work = Work {
        leaves_scanned: counters.leaves.into(),
        codes_scanned: counters.codes,
        codes_refined: counters.refined,
        vectors_reranked: counters.reranked,
        tail_rows,
    };
    Ok((ranked, work))
}

async fn tail_vectors(env: &Environment, view: &View, rows: &[(u64, u32, u32)]) -> Result<RowVectors> {
    let dim = view.tail.frame().dim();
    let mut out = RowVectors::new(dim);
    for (row, body, place) in rows {
        let body = view.tail.read().body(*body);
        let rows = match body {
            BodyRows::Resident(rows) => rows,
            BodyRows::Spilled { entry, index } => body_rows(env, &entry, index, dim).await?,
        };
        out.insert(*row, rows.vector(*place as usize));
    }
    Ok(out)
}

/// Orders rows by (distance, id), cuts to k and reads what matches carry.
async fn matches(env: &Environment, plan: &Plan, mut ranked: Vec<Ranked>) -> Result<Vec<Match>> {
    ranked.sort_by(|a, b| a.distance.total_cmp(&b.distance).then(a.row.cmp(&b.row)));
    // Rows that tie with the k-th stay until their ids decide.
    if let Some(last) = ranked.get(plan.top_k.wrapping_sub(1)).map(|r| r.distance) {
        ranked.retain(|r| r.distance <= last);
    }
    let reader = RecordReader::new(env, &plan.view, &plan.include);
    let mut rows = Vec::with_capacity(ranked.len());
    for (r, id) in ranked.iter().zip(reader.ids_at_hand(&ranked)?) {
        let id = match id {
            Some(id) => id,
            None => reader.id(r.row).await?,
        };
        rows.push((r.distance, id, r.row));
    }
    rows.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1)));
    rows.truncate(plan.top_k);
    let distances: Vec<f64> = rows.iter().map(|(distance, _, _)| *distance).collect();
    let records = reader.records(rows.into_iter().map(|(_, id, row)| (row, id)).collect()).await?;
    Ok(records.into_iter().zip(distances).map(|(record, distance)| Match { record, distance }).collect())
}
