//! `query` and `recall`.

use anyhow::{Result, ensure};
use pando_client::{Client, proto};
use serde_json::{Value, json};

use crate::cli;
use crate::files::vectors;
use crate::output::{self, Bar, Printer, count};

/// Vectors of one call; their answers are printed as they come.
const MOST_VECTORS: u32 = 64;
/// Matches of one call that are aimed at.
const MOST_MATCHES: u32 = 65_536;

impl cli::Effort {
    /// As the API takes it.
    pub fn to_proto(&self) -> Option<proto::Effort> {
        use proto::effort::Kind;
        let kind = self.recall_target.map(Kind::RecallTarget).or(self.leaves.map(Kind::Leaves));
        kind.map(proto::Effort::from)
    }
}

pub async fn query(client: &Client, args: &cli::Query, printer: Printer) -> Result<()> {
    let vectors = vectors::load(&args.vectors.vectors, &args.vectors.vector_column)?;
    let template = proto::QueryRequest {
        collection: args.name.clone(),
        top_k: args.vectors.top_k,
        include: Some(proto::Include { all_attributes: true, ..Default::default() }),
        at: args.at.clone().map(|root| proto::At { version: Some(proto::at::Version::Root(root)) }),
        mode: if args.exact { proto::Mode::Exact.into() } else { proto::Mode::Approximate.into() },
        effort: args.effort.to_proto(),
        ..Default::default()
    };
    let step = (MOST_MATCHES / args.vectors.top_k.max(1)).clamp(1, MOST_VECTORS) as usize;
    let mut number = 0;
    for chunk in vectors.chunks(step) {
        let request = proto::QueryRequest {
            vectors: chunk.iter().map(|vector| vector.clone().into()).collect(),
            ..template.clone()
        };
        let response = client.query(request).await.map_err(|error| renumber(error, number as u64))?;
        ensure!(response.answers.len() == chunk.len(), "the server gave {} answers", response.answers.len());
        for answer in &response.answers {
            printer.result(|| answer_json(&response, answer), || answer_text(number, answer));
            number += 1;
        }
    }
    Ok(())
}

/// Counts an error's vector from the start of the file, not of the call.
fn renumber(mut error: pando_client::Error, before: u64) -> anyhow::Error {
    match &mut error.record {
        Some(record) if before > 0 => {
            *record += before;
            let row = *record;
            anyhow::Error::new(error).context(format!("row {row} of the file"))
        }
        _ => error.into(),
    }
}

/// One answer as DESIGN.md section 9 shows it.
pub fn answer_json(response: &proto::QueryResponse, answer: &proto::QueryAnswer) -> Value {
    let work = answer.work.unwrap_or_default();
    let matches = answer.matches.iter().map(|found| {
        let record = found.record.clone().unwrap_or_default();
        json!({
            "id": output::id(record.id.as_ref()),
            "distance": found.distance,
            "attributes": output::attributes(&record),
        })
    });
    let mut json = json!({
        "matches": matches.collect::<Vec<_>>(),
        "root": output::root(&response.root),
        "sequence": response.token.as_ref().map(|token| token.sequence),
        "complete": answer.complete,
        "method": method(answer),
        "leaves_scanned": work.leaves_scanned,
        "codes_scanned": work.codes_scanned,
        "codes_refined": work.codes_refined,
        "vectors_reranked": work.vectors_reranked,
        "tail_rows": work.tail_rows,
        "latency_us": answer.latency_us,
    });
    if !answer.complete {
        json["incomplete_reason"] = answer.incomplete_reason.clone().into();
    }
    json
}

/// How an answer was found, in a word.
pub fn method(answer: &proto::QueryAnswer) -> &'static str {
    match answer.method() {
        proto::Mode::Exact => "exact",
        proto::Mode::Approximate | proto::Mode::Unspecified => "approximate",
    }
}

fn answer_text(number: usize, answer: &proto::QueryAnswer) -> String {
    let work = answer.work.unwrap_or_default();
    let mut text = format!(
        "query {number}: {} matches in {:.2} ms ({}: {} leaves, {} codes, {} vectors)\n",
        answer.matches.len(),
        answer.latency_us as f64 / 1000.0,
        method(answer),
        count(work.leaves_scanned),
        count(work.codes_scanned),
        count(work.vectors_reranked),
    );
    if !answer.complete {
        text.push_str(&format!("  not complete: {}\n", answer.incomplete_reason));
    }
    for found in &answer.matches {
        let record = found.record.clone().unwrap_or_default();
        let id = record.id.clone().unwrap_or_default();
        let attributes =
            record.attributes.iter().map(|(name, value)| format!("  {name}={}", output::value(value)));
        text.push_str(&format!("  {:>12.6}  {id}{}\n", found.distance, attributes.collect::<String>()));
    }
    text
}

pub async fn recall(client: &Client, args: &cli::Recall, printer: Printer) -> Result<()> {
    let vectors = vectors::load(&args.vectors.vectors, &args.vectors.vector_column)?;
    let mut bar = Bar::new("measuring recall", "queries", vectors.len() as u64);
    let request = proto::MeasureRecallRequest {
        collection: args.name.clone(),
        vectors: vectors.into_iter().map(Into::into).collect(),
        top_k: args.vectors.top_k,
        effort: args.effort.to_proto(),
    };
    let report = client.measure_recall(request, |news| bar.news(&news)).await;
    bar.finish();
    let report = report?;
    printer.result(
        || {
            json!({
                "queries": report.queries,
                "top_k": report.top_k,
                "mean": report.mean,
                "p5": report.p5,
                "min": report.min,
            })
        },
        || {
            format!(
                "recall@{} of {} queries: mean {:.4}; 95% of queries reach {:.2}, the worst {:.2}",
                report.top_k,
                count(report.queries),
                report.mean,
                report.p5,
                report.min
            )
        },
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_answer_has_the_promised_keys() {
        let record = proto::Record { id: Some(7u64.into()), ..Default::default() };
        let answer = proto::QueryAnswer {
            matches: vec![proto::Match { record: Some(record), distance: 0.25 }],
            complete: true,
            ..Default::default()
        };
        let response = proto::QueryResponse { token: Some(proto::Token::default()), ..Default::default() };
        let json = answer_json(&response, &answer);
        for key in [
            "matches",
            "root",
            "sequence",
            "complete",
            "method",
            "leaves_scanned",
            "codes_scanned",
            "vectors_reranked",
            "latency_us",
        ] {
            assert!(json.get(key).is_some(), "{key}");
        }
        assert_eq!(json["matches"][0], json!({ "id": 7, "distance": 0.25, "attributes": {} }));
    }
}
