//! What reads promise: exactly the live records, at one position, as many as asked for, in the right order.

use std::collections::BTreeMap;

use pando_proto::v1::{self, at, consistency};
use pando_tests::Fixture;
use pando_tests::data::{Mixture, Rng, Vectors};
use pando_tests::grpc::{Api, How, as_number, number, record};
use pando_tests::oracle::{distance, nearest};

/// A model of a collection: the live vector of each id.
type Model = BTreeMap<u64, Vec<f32>>;

fn truth(model: &Model, metric: &str, q: &[f32], k: usize) -> Vec<(u64, f64)> {
    let mut all: Vec<(u64, f64)> = model.iter().map(|(&id, x)| (id, distance(metric, q, x))).collect();
    all.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
    all.truncate(k);
    all
}

async fn check(api: &mut Api, name: &str, metric: &str, model: &Model, queries: &Vectors, place: &str) {
    assert_eq!(api.count(name).await.expect("count"), model.len() as u64, "{place}");
    let scanned = api.scan(name).await.expect("scan");
    let got: Model =
        scanned.iter().map(|r| (as_number(&r.id), r.vector.clone().expect("a vector").values)).collect();
    assert_eq!(scanned.len(), got.len(), "{place}: an id came twice");
    assert_eq!(&got, model, "{place}");
    let k = 20;
    for how in [How::Exact, How::Target(1.0)] {
        let found = api.search(name, queries, k, how).await;
        for (i, list) in found.iter().enumerate() {
            let want = truth(model, metric, queries.row(i), k as usize);
            assert_eq!(list.len(), want.len(), "{place} {how:?}: min(k, live) results");
            for (a, b) in list.iter().zip(&want) {
                // Ids may differ only where distances are equal to rounding.
                let close = (a.1 - b.1).abs() <= 1e-9 * (1.0 + b.1.abs());
                assert!(close, "{place} {how:?} query {i}: {a:?} where {b:?} is right");
            }
        }
    }
    let exact = api.search(name, queries, k, How::Exact).await;
    let full = api.search(name, queries, k, How::Target(1.0)).await;
    assert_eq!(exact, full, "{place}: full effort is exact, ties included");
    for (list, q) in api.search(name, queries, k, How::Default).await.iter().zip(0..) {
        assert_eq!(list.len(), (k as usize).min(model.len()), "{place}");
        for (id, d) in list {
            let x = model.get(id).unwrap_or_else(|| panic!("{place}: {id} is dead"));
            let want = distance(metric, queries.row(q), x);
            assert!((d - want).abs() <= 1e-9 * (1.0 + want.abs()), "{place}: {id} at {d}, not {want}");
        }
    }
}

/// Random upserts, replacements and deletes, against a model, over several roots, with a tree (small limit 200).
async fn random_history(metric: &str, seed: u64) {
    let f = Fixture::start();
    let mut api = Api::connect(&f.server).await;
    let dim = 20;
    f.server.json(&["create", "h", "--dimension", "20", "--metric", metric, "--small-limit", "200"]);
    let mixture = Mixture::new(seed, dim, 15);
    let pool = mixture.rows(1, 6000);
    let queries = mixture.rows(2, 8);
    let mut rng = Rng::new(seed);
    let mut model = Model::new();
    for round in 0..6 {
        for _ in 0..4 {
            if rng.below(3) < 2 {
                let n = 50 + rng.below(400);
                let records = (0..n).map(|_| {
                    let id = rng.below(2500) as u64;
                    let x = pool.row(rng.below(pool.len())).to_vec();
                    model.insert(id, x.clone());
                    record(number(id), &x)
                });
                let records = records.collect();
                api.upsert("h", records).await.expect("upsert");
            } else {
                let ids: Vec<u64> = (0..rng.below(300)).map(|_| rng.below(2500) as u64).collect();
                let mut was = 0;
                for id in &ids {
                    was += u64::from(model.remove(id).is_some());
                }
                let answer = api.delete("h", ids.into_iter().map(number).collect()).await.expect("delete");
                assert_eq!(answer.deleted, was, "deleted counts the records that were there");
            }
        }
        check(&mut api, "h", metric, &model, &queries, &format!("{metric} round {round} tail")).await;
        f.server.compact("h");
        check(&mut api, "h", metric, &model, &queries, &format!("{metric} round {round} root")).await;
        f.server.verify("h");
    }
    // Nothing left: the tree shrinks to nothing and grows again.
    let all: Vec<v1::Id> = model.keys().map(|&id| number(id)).collect();
    for part in all.chunks(1000) {
        api.delete("h", part.to_vec()).await.expect("delete");
    }
    model.clear();
    check(&mut api, "h", metric, &model, &queries, "emptied, tail").await;
    f.server.compact("h");
    check(&mut api, "h", metric, &model, &queries, "emptied, root").await;
    f.server.verify("h");
    api.upsert_rows("h", 0, &pool.slice(0..700)).await;
    model.extend((0..700).map(|i| (i as u64, pool.row(i).to_vec())));
    f.server.compact("h");
    check(&mut api, "h", metric, &model, &queries, "grown again").await;
    f.server.verify("h");
}

#[tokio::test(flavor = "multi_thread")]
async fn random_history_l2() {
    random_history("l2", 11).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn random_history_cosine() {
    random_history("cosine", 12).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn random_history_dot() {
    random_history("dot", 13).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_later_of_one_id_in_a_batch_wins() {
    let f = Fixture::start();
    let mut api = Api::connect(&f.server).await;
    f.server.create("twice", 2, "l2");
    let records =
        vec![record(number(1), &[1.0, 0.0]), record(number(2), &[2.0, 0.0]), record(number(1), &[3.0, 0.0])];
    let answer = api.upsert("twice", records).await.expect("upsert");
    assert_eq!(answer.upserted, 2, "distinct records");
    let got = api.fetch("twice", vec![number(1)]).await.expect("fetch").remove(0).expect("1");
    assert_eq!(got.vector.expect("a vector").values, [3.0, 0.0]);
    assert_eq!(api.count("twice").await.expect("count"), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_vectors_are_all_found_and_ordered_by_id() {
    let f = Fixture::start();
    let mut api = Api::connect(&f.server).await;
    f.server.json(&["create", "same", "--dimension", "8", "--metric", "l2", "--small-limit", "100"]);
    let mixture = Mixture::new(6, 8, 4);
    let one = mixture.rows(9, 1);
    let copies = Vectors { dim: 8, flat: one.flat.repeat(1500) };
    api.upsert_rows("same", 0, &copies).await;
    api.upsert_rows("same", 5000, &mixture.rows(1, 1000)).await;
    f.server.compact("same");
    f.server.verify("same");
    let found = api.search("same", &one, 1500, How::Exact).await.remove(0);
    let ids: Vec<u64> = found.iter().map(|m| m.0).collect();
    assert_eq!(ids, (0..1500).collect::<Vec<u64>>());
    assert!(found.iter().all(|m| m.1 == 0.0));
    assert_eq!(api.search("same", &one, 1500, How::Target(1.0)).await.remove(0), found);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_root_stays_as_it_was() {
    let f = Fixture::start();
    let mut api = Api::connect(&f.server).await;
    f.server.create("past", 12, "cosine");
    let rows = Mixture::new(7, 12, 5).rows(1, 900);
    api.upsert_rows("past", 0, &rows.slice(0..600)).await;
    let first = f.server.compact("past");
    api.upsert_rows("past", 600, &rows.slice(600..900)).await;
    api.delete("past", (0..100).map(number).collect()).await.expect("delete");
    let second = f.server.compact("past");
    assert_ne!(first, second);
    assert_eq!(f.server.compact("past"), second, "nothing new to compact: the same root");

    let mut count_at = async |root: &str| {
        let request = v1::CountRequest {
            collection: "past".into(),
            at: Some(v1::At { version: Some(at::Version::Root(root.into())) }),
            ..Default::default()
        };
        api.records.count(request).await.map(|a| a.into_inner().count)
    };
    assert_eq!(count_at(&first).await.expect("the first root"), 600);
    assert_eq!(count_at(&second).await.expect("the second root"), 800);
    let unknown = count_at(&"0".repeat(64)).await.expect_err("no such root");
    assert_eq!(unknown.code(), tonic::Code::NotFound, "{unknown}");
    let nonsense = count_at("not-a-root").await.expect_err("not a root id");
    assert_eq!(nonsense.code(), tonic::Code::InvalidArgument, "{nonsense}");

    let query = rows.slice(3..4);
    let request = v1::QueryRequest {
        collection: "past".into(),
        vectors: vec![v1::Vector { values: query.row(0).to_vec() }],
        top_k: 1,
        at: Some(v1::At { version: Some(at::Version::Root(first.clone())) }),
        ..Default::default()
    };
    let answer = api.queries.query(request).await.expect("query").into_inner();
    assert_eq!(answer.root, first);
    let best = answer.answers[0].matches[0].record.as_ref().expect("a record");
    assert_eq!(as_number(&best.id), 3, "deleted later, so found at the older root");
    assert!(api.search("past", &query, 800, How::Exact).await[0].iter().all(|m| m.0 >= 100));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_consistency_reads_its_own_writes_through_the_token() {
    let f = Fixture::start();
    let mut api = Api::connect(&f.server).await;
    f.server.create("fresh", 4, "l2");
    let mut token = None;
    for i in 0..20u64 {
        let written =
            api.upsert("fresh", vec![record(number(i), &[i as f32, 1.0, 0.0, 0.0])]).await.expect("upsert");
        token = written.token;
        use consistency::{Level, Strong};
        let levels = [None, Some(Level::Strong(Strong {})), token.clone().map(Level::AtLeast)];
        for level in levels {
            let request = v1::CountRequest {
                collection: "fresh".into(),
                consistency: Some(v1::Consistency { level }),
                ..Default::default()
            };
            let answer = api.records.count(request).await.expect("count").into_inner();
            assert_eq!(answer.count, i + 1);
            assert!(answer.token.expect("a token").sequence >= token.as_ref().expect("a token").sequence);
        }
    }
    let mut token = token.expect("a token");
    let mut ask = async |token: v1::Token| {
        let request = v1::CountRequest {
            collection: "fresh".into(),
            consistency: Some(v1::Consistency { level: Some(consistency::Level::AtLeast(token)) }),
            ..Default::default()
        };
        api.records.count(request).await.expect_err("an impossible token").code()
    };
    token.sequence += 1000;
    assert_eq!(ask(token.clone()).await, tonic::Code::FailedPrecondition, "past the end");
    token.uuid = "00000000-0000-4000-8000-000000000000".into();
    assert_eq!(ask(token).await, tonic::Code::NotFound, "another collection");
}

#[tokio::test(flavor = "multi_thread")]
async fn distances_are_those_of_the_contract() {
    let f = Fixture::start();
    let mut api = Api::connect(&f.server).await;
    // Odd dimensions, from one to some hundreds.
    for (metric, dim) in [("l2", 1), ("cosine", 3), ("dot", 65), ("l2", 130), ("cosine", 257)] {
        let name = format!("{metric}-{dim}");
        f.server.create(&name, dim, metric);
        let mixture = Mixture::new(dim as u64, dim, 6);
        let rows = mixture.rows(1, 400);
        api.upsert_rows(&name, 0, &rows).await;
        let queries = mixture.rows(2, 5);
        for place in ["tail", "root"] {
            let found = api.search(&name, &queries, 10, How::Exact).await;
            for (i, list) in found.iter().enumerate() {
                let want = nearest(metric, queries.row(i), &rows, 10, |_| true);
                for (a, b) in list.iter().zip(&want) {
                    assert_eq!(a.0, b.0, "{name} {place} query {i}");
                    assert!((a.1 - b.1).abs() <= 1e-9 * (1.0 + b.1.abs()), "{name} {place}: {a:?} {b:?}");
                }
            }
            f.server.compact(&name);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_collection_is_gone_and_its_name_is_free() {
    let f = Fixture::start();
    let mut api = Api::connect(&f.server).await;
    f.server.create("gone", 2, "l2");
    api.upsert("gone", vec![record(number(1), &[1.0, 2.0])]).await.expect("upsert");
    let drop = v1::DeleteCollectionRequest { collection: "gone".into() };
    api.collections.delete_collection(drop).await.expect("drop");
    assert_eq!(api.count("gone").await.expect_err("dropped").code(), tonic::Code::NotFound);
    f.server.create("gone", 3, "dot");
    assert_eq!(api.count("gone").await.expect("the new one"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idempotency_key_makes_a_repetition_harmless() {
    let f = Fixture::start();
    let mut api = Api::connect(&f.server).await;
    f.server.create("keyed", 2, "l2");
    let request = |x: f32| v1::UpsertRequest {
        collection: "keyed".into(),
        records: vec![record(number(1), &[x, 0.0])],
        idempotency_key: "order-66".into(),
    };
    let first = api.records.upsert(request(1.0)).await.expect("upsert").into_inner();
    let again = api.records.upsert(request(1.0)).await.expect("again").into_inner();
    assert_eq!(first, again);
    let other = api.records.upsert(request(2.0)).await.expect_err("another body under the same key");
    assert_eq!(other.code(), tonic::Code::InvalidArgument, "{other}");
    f.server.compact("keyed");
    let after = api.records.upsert(request(1.0)).await.expect("after a checkpoint").into_inner();
    assert_eq!(first, after);
}
