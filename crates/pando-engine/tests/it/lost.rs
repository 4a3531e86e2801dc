//! The newest root is never collected: when its objects are gone, they were lost, and nobody may be told that the root expired.

use std::sync::Arc;

use futures::TryStreamExt;
use object_store::{ObjectStore, ObjectStoreExt};
use pando_engine::api::*;
use pando_engine::{Engine, Error, ErrorKind, Settings};
use pando_store::{Key, ObjectKind};

use crate::checks::*;
use crate::support::*;

const DIM: usize = 64;

/// Without memory: each read meets storage.
fn settings() -> Settings {
    Settings { cache_memory: 0, ..by_hand() }
}

async fn write(engine: &Engine, ids: std::ops::Range<u64>) {
    let mut generator = Generator(ids.start);
    let records: Vec<_> = ids.map(|id| (RecordId::U64(id), generator.vector(DIM))).collect();
    engine.upsert("c", rows(DIM, &records), None).await.unwrap();
}

/// Two roots.
async fn build(objects: &Arc<dyn ObjectStore>) -> [RootId; 2] {
    let engine = join(objects, settings()).await;
    let create = CreateCollection { small_limit: 100, ..CreateCollection::new("c", DIM as u32, Metric::L2) };
    engine.create_collection(create).await.unwrap();
    let mut roots = Vec::new();
    for ids in [0..4_000, 4_000..4_100] {
        write(&engine, ids).await;
        roots.push(engine.compact("c", quiet()).await.unwrap().root.unwrap());
    }
    engine.shutdown().await;
    [roots[0], roots[1]]
}

/// Everything that only roots reach, of all roots.
async fn lose(objects: &Arc<dyn ObjectStore>) {
    let listed: Vec<_> = objects.list(None).try_collect().await.unwrap();
    for object in listed {
        let kind = Key::parse(object.location.as_ref()).map(|key| key.kind());
        if matches!(kind, Some(ObjectKind::Root | ObjectKind::Pack | ObjectKind::Segment)) {
            objects.delete(&object.location).await.unwrap();
        }
    }
}

fn is_loss(error: &Error, what: &str) {
    assert_eq!((error.kind, error.reason), (ErrorKind::DataLoss, "DATA_LOSS"), "{what}: {error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newest_root_is_lost_during_reads() {
    let objects = bucket();
    let [first, newest] = build(&objects).await;
    let engine = join(&objects, settings()).await;
    let include = || Include { vector: true, attributes: IncludeAttributes::All };
    let mut scan = engine.scan("c", include(), Consistency::Strong, At::Now, 1).await.unwrap();
    scan.try_next().await.unwrap().unwrap();
    lose(&objects).await;
    let vector = Generator(9).vector(DIM);
    is_loss(&scan.try_collect::<Vec<_>>().await.unwrap_err(), "scan");
    is_loss(&engine.query(query("c", &vector, 10)).await.unwrap_err(), "query");
    let exact = QueryRequest { exact: true, ..query("c", &vector, 10) };
    is_loss(&engine.query(exact).await.unwrap_err(), "exact query");
    let ids = vec![RecordId::U64(7)];
    is_loss(&engine.fetch("c", ids, include(), Consistency::Strong, At::Now).await.unwrap_err(), "fetch");
    // By its id: here it is open, a node that starts now has to open it.
    let at = |root| QueryRequest { at: At::Root(root), ..query("c", &vector, 10) };
    is_loss(&engine.query(at(newest)).await.unwrap_err(), "the newest root by its id");
    // Of an older one nobody can tell whether it was collected.
    let error = engine.query(at(first)).await.unwrap_err();
    assert_eq!((error.kind, error.reason), (ErrorKind::FailedPrecondition, "ROOT_EXPIRED"));
}

/// A node whose tail is not empty opens the newest root a second time for a read at it.
#[tokio::test(flavor = "multi_thread")]
async fn the_newest_root_is_lost_before_it_is_read_by_its_id() {
    let objects = bucket();
    let [_, newest] = build(&objects).await;
    let engine = join(&objects, settings()).await;
    // In the tail; the ids are new, so that nothing of the root is read for them later.
    write(&engine, 5_000..5_001).await;
    lose(&objects).await;
    let error = engine.count("c", Consistency::Strong, At::Root(newest)).await.unwrap_err();
    is_loss(&error, "the newest root by its id");
}
