//! Collections and single records.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use pando_client::{Client, proto};
use serde_json::{Value, json};

use crate::cli::{self, Metric, Switch};
use crate::output::{self, Bar, Printer, count as grouped};

/// Ids of the command line: all digits are a number, unless `text` says otherwise or it is 2^64 or more.
pub fn ids(ids: &[String], text: bool) -> Vec<proto::Id> {
    let id = |id: &String| match id.parse::<u64>() {
        Ok(number) if !text && id.bytes().all(|byte| byte.is_ascii_digit()) => number.into(),
        _ => id.as_str().into(),
    };
    ids.iter().map(id).collect()
}

/// The name of a collection's metric.
fn metric(config: &proto::CollectionConfig) -> &'static str {
    match config.metric() {
        proto::Metric::L2 => "l2",
        proto::Metric::Cosine => "cosine",
        proto::Metric::Dot => "dot",
        proto::Metric::Unspecified => "unknown",
    }
}

fn collection_json(collection: &proto::Collection) -> Value {
    let config = collection.config.clone().unwrap_or_default();
    let attributes = collection.attributes.iter().map(|(name, ty)| {
        let ty = proto::AttributeType::try_from(*ty).unwrap_or_default().as_str_name();
        (name.clone(), Value::from(ty.trim_start_matches("ATTRIBUTE_TYPE_").to_lowercase()))
    });
    json!({
        "name": config.name,
        "uuid": collection.uuid,
        "dimension": config.dimension,
        "metric": metric(&config),
        "copies": config.copies,
        "refine": config.refine,
        "seed": config.seed,
        "small_limit": config.small_limit,
        "records": collection.records,
        "root": output::root(&collection.root),
        "generation": collection.generation,
        "sequence": collection.sequence,
        "tail_records": collection.tail_records,
        "leaves": collection.leaves,
        "levels": collection.levels,
        "index_bytes": collection.index_bytes,
        "segment_bytes": collection.segment_bytes,
        "attributes": Value::Object(attributes.collect()),
    })
}

fn collection_text(collection: &proto::Collection) -> String {
    let config = collection.config.clone().unwrap_or_default();
    let root = if collection.root.is_empty() { "none yet" } else { &collection.root };
    let mut text = format!(
        "{}: {} records, {} dimensions, {}\n  root         {root}\n  generation   {}\n  sequence     {}\n  \
         not in root  {} rows\n  index        {} leaves in {} levels, {} bytes\n  segments     {} bytes\n",
        config.name,
        grouped(collection.records),
        config.dimension,
        metric(&config),
        collection.generation,
        collection.sequence,
        grouped(collection.tail_records),
        grouped(collection.leaves),
        collection.levels,
        grouped(collection.index_bytes),
        grouped(collection.segment_bytes),
    );
    for (name, ty) in &collection.attributes {
        let ty = proto::AttributeType::try_from(*ty).unwrap_or_default().as_str_name();
        let ty = ty.trim_start_matches("ATTRIBUTE_TYPE_").to_lowercase();
        text.push_str(&format!("  attribute    {name}: {ty}\n"));
    }
    text
}

pub async fn create(client: &Client, args: &cli::Create, printer: Printer) -> Result<()> {
    let metric = match args.metric {
        Metric::Cosine => proto::Metric::Cosine,
        Metric::L2 => proto::Metric::L2,
        Metric::Dot => proto::Metric::Dot,
    };
    let config = proto::CollectionConfig {
        name: args.name.clone(),
        dimension: args.dimension,
        metric: metric.into(),
        copies: args.copies,
        refine: args.refine.map(|refine| refine == Switch::On),
        seed: Some(args.seed),
        small_limit: args.small_limit,
        log_retention_seconds: None,
    };
    let created = client.create_collection(config).await?;
    printer.result(|| collection_json(&created), || format!("created {}", args.name));
    Ok(())
}

pub async fn describe(client: &Client, args: &cli::Collection, printer: Printer) -> Result<()> {
    let described = client.describe(&args.name).await?;
    printer.result(|| collection_json(&described), || collection_text(&described));
    Ok(())
}

pub async fn collections(client: &Client, printer: Printer) -> Result<()> {
    let names = client.list_collections().await?;
    printer.result(
        || json!({ "collections": names }),
        || if names.is_empty() { "no collections yet".into() } else { names.join("\n") },
    );
    Ok(())
}

pub async fn count(client: &Client, args: &cli::Collection, printer: Printer) -> Result<()> {
    let request = proto::CountRequest { collection: args.name.clone(), ..Default::default() };
    let counted = client.count(request).await?.count;
    printer.result(|| json!({ "count": counted }), || grouped(counted));
    Ok(())
}

pub async fn roots(client: &Client, args: &cli::Collection, printer: Printer) -> Result<()> {
    let roots = client.list_roots(&args.name).await?;
    let json = || {
        let roots = roots.iter().map(|root| {
            json!({
                "generation": root.generation,
                "root": root.root,
                "sequence": root.sequence,
                "depth": root.depth,
                "records": root.records,
                "readable": root.readable,
            })
        });
        json!({ "roots": roots.collect::<Vec<_>>() })
    };
    let text = || {
        let line = |root: &proto::Root| {
            let gone = if root.readable { "" } else { "  (no longer readable)" };
            format!(
                "{:>6}  {}  up to {:>8}  {:>14} records{gone}",
                root.generation,
                root.root,
                root.sequence,
                grouped(root.records)
            )
        };
        if roots.is_empty() {
            "no roots yet".into()
        } else {
            roots.iter().map(line).collect::<Vec<_>>().join("\n")
        }
    };
    printer.result(json, text);
    Ok(())
}

pub async fn compact(client: &Client, args: &cli::Compact, printer: Printer) -> Result<()> {
    let start = Instant::now();
    let mut bar = Bar::new("compacting", "done", 0);
    let outcome = client.compact(&args.name, args.wait, |news| bar.news(&news)).await;
    bar.finish();
    let Some(outcome) = outcome? else {
        printer.result(|| json!({ "started": true }), || "started".into());
        return Ok(());
    };
    let seconds = start.elapsed().as_secs_f64();
    printer.result(
        || {
            json!({
                "root": output::root(&outcome.root),
                "generation": outcome.generation,
                "sequence": outcome.sequence,
                "seconds": seconds,
            })
        },
        || match (outcome.root.as_str(), outcome.published) {
            ("", _) => "nothing was ever written: there is no root to build".into(),
            (root, true) => {
                format!("built root {root} (generation {}) in {seconds:.1} s", outcome.generation)
            }
            (root, false) => format!("root {root} (generation {}) covers everything", outcome.generation),
        },
    );
    Ok(())
}

pub async fn fetch(client: &Client, args: &cli::Fetch, printer: Printer) -> Result<()> {
    let request = proto::FetchRequest {
        collection: args.name.clone(),
        ids: ids(&args.ids, args.string_ids),
        include: Some(proto::Include { vector: true, all_attributes: true, attributes: Vec::new() }),
        ..Default::default()
    };
    let fetched = client.fetch(request).await?;
    let json = || {
        let results = fetched.results.iter().map(|result| match &result.record {
            None => json!({ "id": output::id(result.id.as_ref()), "found": false }),
            Some(record) => json!({
                "id": output::id(result.id.as_ref()),
                "found": true,
                "vector": record.vector.as_ref().map(|vector| &vector.values),
                "attributes": output::attributes(record),
            }),
        });
        let sequence = fetched.token.as_ref().map(|token| token.sequence);
        json!({ "results": results.collect::<Vec<_>>(), "root": output::root(&fetched.root), "sequence": sequence })
    };
    let text = || {
        let line = |result: &proto::FetchResult| {
            let id = result.id.clone().unwrap_or_default();
            let Some(record) = &result.record else { return format!("{id}: there is no such record") };
            let values = record.vector.as_ref().map(|vector| vector.values.as_slice()).unwrap_or_default();
            let start: Vec<String> = values.iter().take(6).map(|x| format!("{x:.4}")).collect();
            let more = if values.len() > 6 { ", …" } else { "" };
            format!(
                "{id}: [{}{more}] ({} elements)\n{}",
                start.join(", "),
                values.len(),
                attribute_lines(record)
            )
        };
        fetched.results.iter().map(line).collect::<Vec<_>>().join("\n")
    };
    printer.result(json, text);
    Ok(())
}

fn attribute_lines(record: &proto::Record) -> String {
    let line = |(name, value): (&String, &proto::Value)| format!("  {name} = {}\n", output::value(value));
    record.attributes.iter().map(line).collect()
}

pub async fn delete(client: &Client, args: &cli::Delete, printer: Printer) -> Result<()> {
    let deleted = client.delete_ids(&args.name, ids(&args.ids, args.string_ids)).await?;
    let sequence = deleted.token.map(|token| token.sequence);
    printer.result(
        || json!({ "deleted": deleted.deleted, "sequence": sequence }),
        || format!("deleted {} of {}", grouped(deleted.deleted), grouped(args.ids.len() as u64)),
    );
    Ok(())
}

pub async fn gc(client: &Client, args: &cli::Gc, printer: Printer) -> Result<()> {
    let mut bar = Bar::new("looking", "objects", 0);
    let report = client.collect_garbage(&args.name, args.dry_run, |news| bar.news(&news)).await;
    bar.finish();
    let report = report?;
    printer.result(
        || {
            let kind = |kind: &proto::GarbageOfKind| {
                json!({
                    "kind": kind.kind,
                    "deleted_objects": kind.deleted_objects,
                    "deleted_bytes": kind.deleted_bytes,
                    "kept_objects": kind.kept_objects,
                    "kept_bytes": kind.kept_bytes,
                })
            };
            json!({
                "dry_run": report.dry_run,
                "generation": report.generation,
                "log_floor": report.log_floor,
                "recent_roots": report.recent_roots,
                "held_roots": report.held_roots,
                "deleted_objects": report.deleted_objects,
                "deleted_bytes": report.deleted_bytes,
                "kept_objects": report.kept_objects,
                "kept_bytes": report.kept_bytes,
                "failed_objects": report.failed_objects,
                "kinds": report.kinds.iter().map(kind).collect::<Vec<_>>(),
            })
        },
        || {
            let verb = if report.dry_run { "would delete" } else { "deleted" };
            let mut lines = vec![format!(
                "{verb} {} objects of {} bytes, kept {} of {} bytes; {} roots are kept for their age, {} for their names",
                grouped(report.deleted_objects),
                grouped(report.deleted_bytes),
                grouped(report.kept_objects),
                grouped(report.kept_bytes),
                report.recent_roots,
                report.held_roots
            )];
            lines.extend(report.kinds.iter().map(|kind| {
                format!(
                    "  {:<16} {verb} {:>8} of {} bytes, kept {:>8} of {} bytes",
                    kind.kind,
                    grouped(kind.deleted_objects),
                    grouped(kind.deleted_bytes),
                    grouped(kind.kept_objects),
                    grouped(kind.kept_bytes)
                )
            }));
            if report.failed_objects > 0 {
                lines.push(format!("{} objects could not be deleted this time", report.failed_objects));
            }
            lines.join("\n")
        },
    );
    Ok(())
}

/// Exit code 1 when something is wrong.
pub async fn verify(client: &Client, args: &cli::Verify, printer: Printer) -> Result<ExitCode> {
    let at = args.at.clone().map(|root| proto::At { version: Some(proto::at::Version::Root(root)) });
    let mut bar = Bar::new("verifying", "blocks", 0);
    let report = client.verify(&args.name, at, |news| bar.news(&news)).await;
    bar.finish();
    let report = report?;
    printer.result(
        || {
            json!({
                "ok": report.ok,
                "root": output::root(&report.root),
                "records": report.records,
                "blocks": report.blocks,
                "problems": report.problems,
            })
        },
        || {
            let found = if report.ok {
                "everything is as it should be".to_owned()
            } else {
                format!("{} problems:\n  {}", report.problems.len(), report.problems.join("\n  "))
            };
            let root = if report.root.is_empty() { "no root yet" } else { &report.root };
            format!(
                "{root}: {} records, {} blocks read; {found}",
                grouped(report.records),
                grouped(report.blocks)
            )
        },
    );
    Ok(if report.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_numbers_unless_they_do_not_fit_or_text_is_asked_for() {
        let given: Vec<String> =
            ["0", "18446744073709551615", "18446744073709551616", "-1", "+1", "1 ", "a1", "007", ""]
                .map(Into::into)
                .into();
        let parsed = ids(&given, false);
        let expected: Vec<proto::Id> = vec![
            0u64.into(),
            u64::MAX.into(),
            "18446744073709551616".into(),
            "-1".into(),
            "+1".into(),
            "1 ".into(),
            "a1".into(),
            7u64.into(),
            "".into(),
        ];
        assert_eq!(parsed, expected);
        assert_eq!(ids(&given[..1], true), vec![proto::Id::from("0")]);
    }

    #[test]
    fn describe_has_the_promised_keys() {
        let json = collection_json(&proto::Collection::default());
        for key in [
            "name",
            "dimension",
            "metric",
            "records",
            "root",
            "generation",
            "sequence",
            "tail_records",
            "leaves",
            "levels",
            "index_bytes",
            "segment_bytes",
        ] {
            assert!(json.get(key).is_some(), "{key}");
        }
        assert_eq!(json["root"], Value::Null);
    }
}
