//! Services run every call in tasks of their own: all futures must be `Send` whatever lifetimes they capture. This
//! file only has to compile.

use std::sync::Arc;

use pando_engine::Engine;
use pando_engine::api::*;

use crate::support::*;

#[allow(dead_code)]
fn every_call_can_be_spawned(engine: Arc<Engine>) {
    let e = engine.clone();
    tokio::spawn(async move { e.query(query("c", &[0.0], 1)).await });
    let e = engine.clone();
    tokio::spawn(async move { e.query_here(query("c", &[0.0], 1)).await });
    let e = engine.clone();
    tokio::spawn(async move { e.measure_recall("c", vec![], 1, Effort::default(), quiet()).await });
    let e = engine.clone();
    tokio::spawn(async move { e.compact("c", quiet()).await });
    let e = engine.clone();
    tokio::spawn(async move { e.verify("c", At::Now, quiet()).await });
    let e = engine.clone();
    tokio::spawn(async move { e.upsert("c", Rows::empty(1), None).await });
    let e = engine.clone();
    tokio::spawn(async move { e.delete_ids("c", vec![], None).await });
    let e = engine.clone();
    tokio::spawn(async move {
        e.scan("c", Include::default(), Consistency::Strong, At::Now, 1).await.map(|_| ())
    });
    let e = engine.clone();
    tokio::spawn(async move { e.fetch("c", vec![], Include::default(), Consistency::Strong, At::Now).await });
    let e = engine.clone();
    tokio::spawn(async move { e.create_collection(CreateCollection::new("c", 1, Metric::L2)).await });
    let e = engine.clone();
    tokio::spawn(async move { e.delete_collection("c").await });
    tokio::spawn(async move {
        (engine.describe("c").await, engine.list_roots("c").await, engine.list_collections().await)
    });
}
