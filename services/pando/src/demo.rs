//! `demo`: real sentences in a server of this process, searched in front of your eyes.

use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use arrow_array::cast::AsArray;
use arrow_ipc::reader::FileReader;
use pando_client::{Client, ConnectOptions, proto};
use pando_engine::{Engine, Settings};
use pando_gateway::{Gateway, ServeError};
use pando_telemetry::Metrics;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::cli::{self, Output};
use crate::files::vectors;
use crate::output::{self, Printer, count};
use crate::{ingest, serve};

/// 12,288 dictionary definitions and their embeddings; data/demo/README.md says whence.
const SENTENCES: &[u8] =
    include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/demo/sentences.arrow"));
/// Searches that are not among them.
const QUERIES: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/demo/queries.arrow"));
const COLLECTION: &str = "sentences";
const DIMENSION: u32 = 384;
/// Searches shown, and sentences of each.
const SHOWN: usize = 5;
const SHOWN_MATCHES: usize = 3;
const TOP_K: u32 = 10;

struct Query {
    text: String,
    vector: Vec<f32>,
}

fn queries() -> Result<Vec<Query>> {
    let mut queries = Vec::new();
    for batch in FileReader::try_new(Cursor::new(QUERIES), None)? {
        let batch = batch?;
        let texts = batch.column_by_name("text").context("the demo's queries have no texts")?;
        let mut found = Vec::new();
        vectors::extend(&mut found, &batch, "vector")?;
        let texts = texts.as_string::<i32>().iter().map(|text| text.unwrap_or_default().to_owned());
        queries.extend(texts.zip(found).map(|(text, vector)| Query { text, vector }));
    }
    Ok(queries)
}

/// Where the demo's files lie.
struct Place {
    data: PathBuf,
    queries: PathBuf,
    /// Removes everything at the end, unless the caller chose the directory.
    _temporary: Option<tempfile::TempDir>,
}

fn place(data_dir: Option<&Path>) -> Result<Place> {
    let Some(data) = data_dir else {
        let temporary = tempfile::Builder::new().prefix("pando-demo-").tempdir()?;
        let place = Place {
            data: temporary.path().join("data"),
            queries: temporary.path().join("queries.arrow"),
            _temporary: Some(temporary),
        };
        std::fs::write(&place.queries, QUERIES)?;
        return Ok(place);
    };
    let fresh = match std::fs::read_dir(data) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    };
    ensure!(
        fresh,
        "{} is not empty; the demo needs a fresh directory (without --data-dir it takes a temporary one)",
        data.display()
    );
    let queries = std::env::temp_dir().join("pando-demo-queries.arrow");
    std::fs::write(&queries, QUERIES)?;
    Ok(Place { data: data.to_owned(), queries, _temporary: None })
}

/// A gateway on the usual ports, or on free ones when those are taken.
async fn bind(engine: &Arc<Engine>, exit: bool) -> Result<Gateway> {
    let metrics = Metrics::install()?;
    let anywhere = pando_gateway::Settings {
        listen: ([127, 0, 0, 1], 0).into(),
        http: Some(([127, 0, 0, 1], 0).into()),
        ..pando_gateway::Settings::default()
    };
    if exit {
        return Ok(Gateway::bind(engine.clone(), anywhere, metrics).await?);
    }
    match Gateway::bind(engine.clone(), pando_gateway::Settings::default(), metrics.clone()).await {
        Err(ServeError::Bind { .. }) => Ok(Gateway::bind(engine.clone(), anywhere, metrics).await?),
        bound => Ok(bound?),
    }
}

pub async fn run(args: &cli::Demo, printer: Printer) -> Result<()> {
    let place = place(args.data_dir.as_deref())?;
    let engine = serve::open(&place.data, Settings { auto_compact: false, ..Settings::default() }).await?;
    let gateway = bind(&engine, args.exit).await?;
    let url = format!("http://{}", gateway.address());
    let http = gateway.http_address();
    let stop = CancellationToken::new();
    let serving = tokio::spawn(gateway.serve(stop.clone().cancelled_owned()));

    let shown = tokio::select! {
        shown = show(&url, &place, printer) => shown,
        () = serve::asked_to_stop() => Ok(()),
    };
    if shown.is_ok() && args.exit && printer.0 == Output::Text {
        println!("Without --exit the demo goes on serving, and says what to try next.");
    }
    let ended = match (shown, args.exit) {
        (Ok(()), false) => {
            if printer.0 == Output::Text {
                println!("{}", what_next(&url, http.map(|http| http.to_string()), &place, args));
            }
            serve::asked_to_stop().await;
            Ok(())
        }
        (shown, _) => shown,
    };
    stop.cancel();
    serving.await??;
    engine.shutdown().await;
    ended
}

/// Loads, compacts, measures and searches.
async fn show(url: &str, place: &Place, printer: Printer) -> Result<()> {
    let say = |line: String| {
        if printer.0 == Output::Text {
            println!("{line}");
        }
    };
    let queries = queries()?;
    say("Pando demo: dictionary definitions as 384-dimensional embeddings (WordNet 3.0, all-MiniLM-L6-v2)\n"
        .into());
    let client = Client::connect(url, ConnectOptions::default()).await?;
    say(format!("  server      {url}, data in {}", place.data.display()));
    client
        .create_collection(proto::CollectionConfig {
            name: COLLECTION.into(),
            dimension: DIMENSION,
            metric: proto::Metric::Cosine.into(),
            ..Default::default()
        })
        .await?;

    let start = Instant::now();
    let sentences = FileReader::try_new(Cursor::new(SENTENCES), None)?;
    let loaded = ingest::load(&client, COLLECTION, sentences.map(|batch| Ok(batch?))).await?;
    let seconds = start.elapsed().as_secs_f64();
    let rate = count((loaded.rows as f64 / seconds) as u64);
    say(format!("  loaded      {} sentences in {seconds:.2} s ({rate} rows/s)", count(loaded.rows)));

    let start = Instant::now();
    let outcome = client.compact(COLLECTION, true, |_| {}).await?.context("the server built no root")?;
    let described = client.describe(COLLECTION).await?;
    say(format!(
        "  built       root {}… in {:.2} s: {} leaves, {} levels, {:.1} MB of index beside {:.1} MB of rows",
        outcome.root.get(..12).unwrap_or(&outcome.root),
        start.elapsed().as_secs_f64(),
        count(described.leaves),
        described.levels,
        described.index_bytes as f64 / 1e6,
        described.segment_bytes as f64 / 1e6,
    ));

    let recall = proto::MeasureRecallRequest {
        collection: COLLECTION.into(),
        vectors: queries.iter().map(|query| query.vector.clone().into()).collect(),
        top_k: TOP_K,
        effort: None,
    };
    let recall = client.measure_recall(recall, |_| {}).await?;
    say(format!(
        "  recall@{TOP_K}   {:.3} of what exact search finds, over {} searches that are not among the sentences\n",
        recall.mean, recall.queries
    ));

    let mut searches = Vec::new();
    for query in queries.iter().take(SHOWN) {
        let request = proto::QueryRequest {
            collection: COLLECTION.into(),
            vectors: vec![query.vector.clone().into()],
            top_k: TOP_K,
            include: Some(proto::Include { all_attributes: true, ..Default::default() }),
            ..Default::default()
        };
        // The first one finds the caches cold.
        client.query(request.clone()).await?;
        let response = client.query(request).await?;
        let answer = response.answers.first().context("the server gave no answer")?;
        say(search_text(query, answer, described.leaves));
        searches.push(search_json(query, answer));
    }
    if printer.0 == Output::Json {
        let summary = json!({
            "server": url,
            "rows": loaded.rows,
            "root": output::root(&outcome.root),
            "leaves": described.leaves,
            "recall": recall.mean,
            "queries": recall.queries,
            "top_k": TOP_K,
            "searches": searches,
        });
        printer.result(|| summary, String::new);
    }
    Ok(())
}

/// An attribute of a match that holds text.
fn text<'a>(found: &'a proto::Match, name: &str) -> &'a str {
    let value = found.record.as_ref().and_then(|record| record.attributes.get(name)?.kind.as_ref());
    match value {
        Some(proto::value::Kind::String(text)) => text,
        _ => "",
    }
}

fn search_text(query: &Query, answer: &proto::QueryAnswer, leaves: u64) -> String {
    let work = answer.work.unwrap_or_default();
    let mut out = format!(
        "  \"{}\"  ({:.2} ms, {} of {} leaves)\n",
        query.text,
        answer.latency_us as f64 / 1000.0,
        work.leaves_scanned,
        leaves
    );
    for found in answer.matches.iter().take(SHOWN_MATCHES) {
        out.push_str(&format!(
            "      {:.3}  {}: {}\n",
            found.distance,
            text(found, "word"),
            text(found, "text")
        ));
    }
    out
}

fn search_json(query: &Query, answer: &proto::QueryAnswer) -> Value {
    let matches = answer.matches.iter().map(|found| {
        let id = output::id(found.record.as_ref().and_then(|record| record.id.as_ref()));
        json!({ "id": id, "distance": found.distance, "word": text(found, "word"), "text": text(found, "text") })
    });
    json!({ "query": query.text, "latency_us": answer.latency_us, "matches": matches.collect::<Vec<_>>() })
}

fn what_next(url: &str, http: Option<String>, place: &Place, args: &cli::Demo) -> String {
    let pando = std::env::args().next().unwrap_or_else(|| "pando".into());
    let server = if url == "http://127.0.0.1:7700" { String::new() } else { format!(" --server {url}") };
    let queries = place.queries.display();
    let kept = match &args.data_dir {
        Some(data) => format!("the data stays in {0}: pando serve --data-dir {0}", data.display()),
        None => "its data is removed then".into(),
    };
    format!(
        "Try next, in another terminal:\n\n\
         \x20 {pando} describe {COLLECTION}{server}\n\
         \x20 {pando} query {COLLECTION} --vectors {queries} --top-k 3{server}\n\
         \x20 {pando} bench {COLLECTION} --vectors {queries} --seconds 5{server}\n\
         \x20 {pando} fetch {COLLECTION} 42{server}\n\
         \x20 {pando} verify {COLLECTION}{server}\n\
         \x20 curl http://{}/metrics\n\n\
         Serving on {url}. Ctrl-C stops it; {kept}.",
        http.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_data_is_what_the_demo_expects() {
        let queries = queries().unwrap();
        assert!(queries.len() >= SHOWN);
        assert!(
            queries.iter().all(|query| query.vector.len() == DIMENSION as usize && !query.text.is_empty())
        );
        let rows: usize = FileReader::try_new(Cursor::new(SENTENCES), None)
            .unwrap()
            .map(|batch| batch.unwrap().num_rows())
            .sum();
        assert!(rows >= 12_000, "enough for a tree");
    }

    #[test]
    fn a_directory_in_use_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("mine"), "x").unwrap();
        assert!(place(Some(directory.path())).is_err());
        assert!(place(Some(&directory.path().join("new"))).is_ok());
    }
}
