//! Exact search: every live row, streamed batch by batch in bounded memory, ranked in f64.

use std::sync::Arc;

use futures::stream::StreamExt;
use pando_format::AlignedBytes;
use pando_kernels::ExactQuery;

use super::exec::{Plan, on_cpu};
use super::search::Ranked;
use super::top::Top;
use crate::api::Work;
use crate::environment::Environment;
use crate::error::Result;
use crate::root::OpenRoot;
use crate::tail::{BodyRows, body_rows};
use crate::view::View;

/// Batches read ahead of the one being measured.
const READ_AHEAD: usize = 4;

/// One exact search.
pub async fn search(env: &Environment, plan: &Plan, query: Vec<f32>) -> Result<(Vec<Ranked>, Work)> {
    let (mut ranked, measured) =
        search_many(env, &plan.view, plan.position, Arc::new(vec![query]), plan.top_k).await?;
    let work = Work { vectors_reranked: measured, ..Work::default() };
    Ok((ranked.pop().unwrap_or_default(), work))
}

/// Exact answers to many queries with one pass over the rows: for each, the `k` nearest and all that tie with the last,
/// in no order; and the number of rows measured for each query.
pub async fn search_many(
    env: &Environment,
    view: &Arc<View>,
    position: u64,
    queries: Arc<Vec<Vec<f32>>>,
    k: usize,
) -> Result<(Vec<Vec<Ranked>>, u64)> {
    let mut tops: Vec<Top> = queries.iter().map(|_| Top::new(k)).collect();
    let mut measured = 0;
    if let Some(root) = &view.root {
        let mut loads = Vec::new();
        for (segment, data) in root.segments().iter().enumerate() {
            loads.extend((0..data.side().batches.len()).map(|batch| load(root.clone(), segment, batch)));
        }
        let mut loaded = futures::stream::iter(loads).buffered(READ_AHEAD);
        while let Some(batch) = loaded.next().await {
            let batch = batch?;
            let (view, queries) = (view.clone(), queries.clone());
            let count;
            (tops, count) = on_cpu(&env.cpu, move || {
                let count = batch.measure(&view, position, &queries, &mut tops);
                (tops, count)
            })
            .await?;
            measured += count;
        }
    }
    let tail_rows: Vec<(u64, u32, u32)> = {
        let tail = view.tail.read();
        let located = tail.visible_rows(position).map(|index| {
            let (body, place) = tail.locate(index);
            (tail.row_number(index), body, place)
        });
        located.collect()
    };
    measured += tail_rows.len() as u64;
    for rows in tail_rows.chunk_by(|a, b| a.1 == b.1) {
        let body = view.tail.read().body(rows[0].1);
        let body = match body {
            BodyRows::Resident(body) => body,
            BodyRows::Spilled { entry, index } => {
                body_rows(env, &entry, index, view.tail.frame().dim()).await?
            }
        };
        let (view, queries, rows) = (view.clone(), queries.clone(), rows.to_vec());
        tops = on_cpu(&env.cpu, move || {
            for (query, top) in queries.iter().zip(&mut tops) {
                let exact = exact_query(&view, query);
                for (row, _, place) in &rows {
                    top.offer(*row, exact.distance(body.vector(*place as usize)));
                }
            }
            tops
        })
        .await?;
    }
    Ok((tops.into_iter().map(Top::finish).collect(), measured))
}

fn exact_query<'a>(view: &View, query: &'a [f32]) -> ExactQuery<'a> {
    let frame = view.tail.frame();
    ExactQuery::new(frame.kernels(), frame.metric(), query)
}

/// A batch whose vectors are at hand.
struct Batch {
    root: Arc<OpenRoot>,
    segment: usize,
    batch: usize,
    read: Option<AlignedBytes>,
}

async fn load(root: Arc<OpenRoot>, segment: usize, batch: usize) -> Result<Batch> {
    let data = &root.segments()[segment];
    let read = match data.kept(batch) {
        Some(_) => None,
        None => {
            let bytes = data.reader().range(data.side().vectors_range(batch)).await?;
            Some(AlignedBytes::copy_from(&bytes))
        }
    };
    Ok(Batch { root: root.clone(), segment, batch, read })
}

impl Batch {
    fn measure(&self, view: &View, position: u64, queries: &[Vec<f32>], tops: &mut [Top]) -> u64 {
        let data = &self.root.segments()[self.segment];
        let vectors: &[f32] = match (&self.read, data.kept(self.batch)) {
            (Some(read), _) => bytemuck::cast_slice(read),
            (None, Some(kept)) => bytemuck::cast_slice(&kept.vectors),
            (None, None) => unreachable!("a batch is kept or was read"),
        };
        let dim = view.tail.frame().dim();
        let tail = view.tail.read();
        let deaths = self.root.deaths();
        let rows = data.batch_rows(self.batch);
        let live: Vec<(u64, &[f32])> = rows
            .into_iter()
            .zip(vectors.chunks_exact(dim))
            .filter(|(row, _)| !deaths.contains(*row) && !tail.hides(*row, position))
            .collect();
        drop(tail);
        for (query, top) in queries.iter().zip(tops) {
            let exact = exact_query(view, query);
            for (row, vector) in &live {
                top.offer(*row, exact.distance(vector));
            }
        }
        live.len() as u64
    }
}
