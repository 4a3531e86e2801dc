//! Recall of approximate search against exact search, both at one position.

use std::collections::HashSet;
use std::sync::Arc;

use futures::stream::StreamExt;

use super::exec::{Place, Plan, exact, search};
use crate::api::{Progress, QueryRequest, RecallReport, Token};
use crate::engine::ProgressSink;
use crate::environment::Environment;
use crate::error::Result;
use crate::view::View;

/// Queries that share one pass of the exact search.
const EXACT_BATCH: usize = 256;

/// Runs every query both ways. A query whose exact answer is empty counts as fully answered.
pub async fn measure_recall(
    env: &Environment,
    view: Arc<View>,
    token: Token,
    request: QueryRequest,
    progress: ProgressSink,
) -> Result<RecallReport> {
    let plan = Plan {
        view,
        position: token.sequence,
        token,
        top_k: request.top_k as usize,
        effort: request.effort,
        epsilon: request.epsilon,
        exact: false,
        include: request.include,
        place: Place::Pool,
    };
    let total = request.vectors.len() as u64;
    let mut recalls: Vec<f64> = Vec::with_capacity(request.vectors.len());
    for vectors in request.vectors.chunks(EXACT_BATCH) {
        progress(Progress { stage: "measuring recall".into(), done: recalls.len() as u64, total });
        let truth = exact(env, &Plan { exact: true, ..plan.clone() }, vectors.to_vec()).await?;
        let searches: Vec<_> = vectors.iter().map(|vector| search(env, &plan, vector.clone())).collect();
        let mut answers = futures::stream::iter(searches).buffered(env.cpu.current_num_threads() * 2);
        let mut truth = truth.into_iter();
        while let (Some(answer), Some(truth)) = (answers.next().await, truth.next()) {
            let truth: HashSet<_> = truth.matches.iter().map(|m| &m.record.id).collect();
            let found = answer?.matches.iter().filter(|m| truth.contains(&m.record.id)).count();
            recalls.push(if truth.is_empty() { 1.0 } else { found as f64 / truth.len() as f64 });
        }
    }
    recalls.sort_by(f64::total_cmp);
    let n = recalls.len();
    Ok(RecallReport {
        queries: n as u64,
        top_k: request.top_k,
        mean: recalls.iter().sum::<f64>() / n.max(1) as f64,
        p5: recalls.get(n / 20).copied().unwrap_or(1.0),
        min: recalls.first().copied().unwrap_or(1.0),
    })
}
