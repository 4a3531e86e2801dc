//! `ingest`: a file into a collection, over Flight.

use std::collections::BTreeSet;
use std::time::Instant;

use anyhow::{Context, Result};
use arrow_array::RecordBatch;
use pando_client::{Client, Code, Ingest, IngestOptions, IngestSummary, proto};
use serde_json::json;
use tokio::sync::mpsc;

use crate::cli;
use crate::files::{self, ReadOptions};
use crate::output::{Bar, Printer, count};

/// Batches that were read and wait to be sent.
const READ_AHEAD: usize = 2;

pub async fn run(client: &Client, args: &cli::Ingest, printer: Printer) -> Result<()> {
    let start = Instant::now();
    let described = client.describe(&args.name).await.map_err(|error| match error.code {
        Code::NotFound => {
            let hint = format!("create it first: pando create {} --dimension D --metric cosine", args.name);
            anyhow::Error::new(error).context(hint)
        }
        _ => error.into(),
    })?;
    let options = ReadOptions {
        id_column: Some(args.id_column.clone()),
        vector_column: args.vector_column.clone(),
        float_attributes: float_attributes(&described),
        ..ReadOptions::default()
    };
    let path = args.file.clone();
    let source = tokio::task::spawn_blocking(move || files::open(&path, &options)).await??;
    let total = source.rows.unwrap_or(0).saturating_sub(args.skip_rows);
    let batches = read(files::skip(source.batches, args.skip_rows));

    let mut columns = IngestOptions::default();
    if files::has_columns(&args.file) {
        columns.id_column.clone_from(&args.id_column);
        columns.vector_column.clone_from(&args.vector_column);
    }
    let mut ingest = client.ingest(&args.name, columns);
    let mut bar = Bar::new("ingesting", "rows", total);
    let sent = async {
        let end = send(&mut ingest, batches, &mut bar).await?;
        Ok::<_, anyhow::Error>((end, ingest.finish().await?))
    };
    let sent = sent.await;
    bar.finish();
    let (end, summary) = sent.map_err(|error| explain(error, args, ingest.progress()))?;
    let seconds = start.elapsed().as_secs_f64();
    if end == End::Interrupted {
        eprintln!("{}", resume_hint(args, &summary));
        anyhow::bail!("interrupted");
    }
    printer.result(
        || json!({ "rows": summary.rows, "seconds": seconds, "sequence": summary.sequence }),
        || {
            format!(
                "{} rows in {seconds:.1} s ({} rows/s), sequence {}",
                count(summary.rows),
                count((summary.rows as f64 / seconds) as u64),
                summary.sequence
            )
        },
    );
    Ok(())
}

fn float_attributes(described: &proto::Collection) -> BTreeSet<String> {
    let floats = [proto::AttributeType::Float64 as i32, proto::AttributeType::Float64List as i32];
    let floats = described.attributes.iter().filter(|(_, ty)| floats.contains(ty));
    floats.map(|(name, _)| name.clone()).collect()
}

/// Reads in a thread of its own, a little ahead.
fn read(batches: files::Batches) -> mpsc::Receiver<Result<RecordBatch>> {
    let (sender, receiver) = mpsc::channel(READ_AHEAD);
    tokio::task::spawn_blocking(move || {
        for batch in batches {
            let failed = batch.is_err();
            if sender.blocking_send(batch).is_err() || failed {
                return;
            }
        }
    });
    receiver
}

#[derive(Debug, PartialEq, Eq)]
enum End {
    Whole,
    Interrupted,
}

async fn send(
    ingest: &mut Ingest,
    mut batches: mpsc::Receiver<Result<RecordBatch>>,
    bar: &mut Bar,
) -> Result<End> {
    let interrupted = tokio::signal::ctrl_c();
    tokio::pin!(interrupted);
    loop {
        let batch = tokio::select! {
            batch = batches.recv() => batch,
            _ = &mut interrupted => return Ok(End::Interrupted),
        };
        let Some(batch) = batch else { return Ok(End::Whole) };
        ingest.send(&batch?).await?;
        bar.set(ingest.progress().rows, 0);
    }
}

/// Says which row of the file a refused record is, and what is durable.
fn explain(error: anyhow::Error, args: &cli::Ingest, durable: &IngestSummary) -> anyhow::Error {
    if durable.rows > 0 {
        eprintln!("{}", resume_hint(args, durable));
    }
    // Errors of reading name the file already.
    let Some(refused) = error.downcast_ref::<pando_client::Error>() else { return error };
    let file = args.file.display();
    match refused.record {
        // Batches are written in order: the refused one follows what is durable.
        Some(record) => {
            let row = args.skip_rows + durable.rows + record;
            error.context(format!("{file}: row {row} (counted from 0)"))
        }
        None => error.context(file.to_string()),
    }
}

fn resume_hint(args: &cli::Ingest, durable: &IngestSummary) -> String {
    format!(
        "{} rows are durable. Run the same command again, which replaces records of the same ids and doubles nothing, \
         or go on after them with --skip-rows {}",
        count(durable.rows),
        args.skip_rows + durable.rows
    )
}

/// Loads batches that are in memory already.
pub async fn load(
    client: &Client,
    collection: &str,
    batches: impl IntoIterator<Item = Result<RecordBatch>>,
) -> Result<IngestSummary> {
    let mut ingest = client.ingest(collection, IngestOptions::default());
    for batch in batches {
        ingest.send(&batch?).await?;
    }
    ingest.finish().await.context("loading records")
}
