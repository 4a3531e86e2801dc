//! Wire messages to the engine's types and back.

use std::time::Duration;

use pando_engine::{Error, api};
use pando_format::{AttributeType, InputError, RecordId, RootId, Rows, RowsBuilder, Value};
use pando_proto::v1;
use tonic::Status;
use uuid::Uuid;

use crate::errors::{invalid, status};

type Result<T, E = Status> = std::result::Result<T, E>;

/// An id of a request; `at` says where it stands.
pub fn record_id(id: Option<v1::Id>, at: impl Fn() -> String) -> Result<RecordId> {
    let id = match id.and_then(|id| id.kind) {
        Some(v1::id::Kind::Number(number)) => RecordId::U64(number),
        Some(v1::id::Kind::Text(text)) => RecordId::Str(text),
        None => return Err(invalid("INVALID_ID", format!("{} has no id", at()))),
    };
    id.check().map_err(|error| invalid("INVALID_ID", format!("{}: {error}", at())))?;
    Ok(id)
}

/// The ids of a list.
pub fn record_ids(ids: Vec<v1::Id>) -> Result<Vec<RecordId>> {
    ids.into_iter().enumerate().map(|(i, id)| record_id(Some(id), || format!("ids[{i}]"))).collect()
}

pub fn wire_id(id: RecordId) -> v1::Id {
    match id {
        RecordId::U64(number) => number.into(),
        RecordId::Str(text) => text.into(),
    }
}

fn value(value: v1::Value) -> Option<Value> {
    use v1::value::Kind;
    Some(match value.kind? {
        Kind::Bool(v) => Value::Bool(v),
        Kind::Int64(v) => Value::Int64(v),
        Kind::Float64(v) => Value::Float64(v),
        Kind::String(v) => Value::String(v),
        Kind::TimestampMicros(v) => Value::Timestamp(v),
        Kind::Bytes(v) => Value::Bytes(v),
        Kind::BoolList(v) => Value::BoolList(v.values),
        Kind::Int64List(v) => Value::Int64List(v.values),
        Kind::Float64List(v) => Value::Float64List(v.values),
        Kind::StringList(v) => Value::StringList(v.values),
    })
}

fn wire_value(value: Value) -> v1::Value {
    use v1::value::Kind;
    let kind = match value {
        Value::Bool(v) => Kind::Bool(v),
        Value::Int64(v) => Kind::Int64(v),
        Value::Float64(v) => Kind::Float64(v),
        Value::String(v) => Kind::String(v),
        Value::Timestamp(v) => Kind::TimestampMicros(v),
        Value::Bytes(v) => Kind::Bytes(v),
        Value::BoolList(values) => Kind::BoolList(v1::BoolList { values }),
        Value::Int64List(values) => Kind::Int64List(v1::Int64List { values }),
        Value::Float64List(values) => Kind::Float64List(v1::Float64List { values }),
        Value::StringList(values) => Kind::StringList(v1::StringList { values }),
    };
    kind.into()
}

/// The records of an upsert, each checked; an error names the first bad one.
pub fn rows(records: Vec<v1::Record>, dimension: usize) -> Result<Rows> {
    let mut builder = RowsBuilder::new(dimension);
    for (i, record) in records.into_iter().enumerate() {
        push(&mut builder, i, record, dimension).map_err(status)?;
    }
    builder.finish().map_err(|error| status(error.into()))
}

/// Adds record `i` of a call.
fn push(builder: &mut RowsBuilder, i: usize, record: v1::Record, dimension: usize) -> Result<(), Error> {
    let bad_id = |what: &str| Error { reason: "INVALID_ID", ..InputError::row(i, "id", what).into() };
    let id = match record.id.and_then(|id| id.kind) {
        Some(v1::id::Kind::Number(number)) => RecordId::U64(number),
        Some(v1::id::Kind::Text(text)) => RecordId::Str(text),
        None => return Err(bad_id("there is no id")),
    };
    id.check().map_err(|error| bad_id(&error.what))?;
    let bad = |reason, column: &str, what: String| Error {
        reason,
        ..InputError::row(i, column, what).with_id(&id).into()
    };
    let mut attributes = Vec::with_capacity(record.attributes.len());
    for (name, attribute) in record.attributes {
        let Some(attribute) = value(attribute) else {
            return Err(bad("VALUE_MISSING", &name, "the attribute has no value; leave it out".into()));
        };
        attributes.push((name, attribute));
    }
    let vector = record.vector.unwrap_or_default().values;
    if vector.len() != dimension {
        let what =
            format!("the vector has {} elements, the collection has dimension {dimension}", vector.len());
        return Err(bad("DIMENSION_MISMATCH", "vector", what));
    }
    if let Some(element) = vector.iter().position(|x| !x.is_finite()) {
        let what = format!("element {element} is {}", vector[element]);
        return Err(bad("NON_FINITE_VECTOR", "vector", what));
    }
    let pairs = attributes.iter().map(|(name, value)| (name.as_str(), value));
    Ok(builder.push(id.clone(), &vector, pairs)?)
}

pub fn wire_record(record: api::Record) -> v1::Record {
    v1::Record {
        id: Some(wire_id(record.id)),
        vector: record.vector.map(v1::Vector::from),
        attributes: record.attributes.into_iter().map(|(name, value)| (name, wire_value(value))).collect(),
    }
}

pub fn token(token: api::Token) -> v1::Token {
    v1::Token { uuid: token.uuid.to_string(), sequence: token.sequence }
}

pub fn root(root: Option<RootId>) -> String {
    root.map(|root| root.to_string()).unwrap_or_default()
}

pub fn include(include: Option<v1::Include>) -> api::Include {
    let include = include.unwrap_or_default();
    let attributes = if include.all_attributes {
        api::IncludeAttributes::All
    } else if include.attributes.is_empty() {
        api::IncludeAttributes::None
    } else {
        api::IncludeAttributes::Named(include.attributes)
    };
    api::Include { vector: include.vector, attributes }
}

pub fn consistency(consistency: Option<v1::Consistency>) -> Result<api::Consistency> {
    use v1::consistency::Level;
    Ok(match consistency.and_then(|consistency| consistency.level) {
        None | Some(Level::Strong(_)) => api::Consistency::Strong,
        Some(Level::Eventual(_)) => api::Consistency::Eventual,
        Some(Level::AtLeast(token)) => {
            let uuid = Uuid::try_parse(&token.uuid).map_err(|_| {
                let words = format!("consistency.at_least.uuid is {:?}, which is not a uuid", token.uuid);
                invalid("BAD_TOKEN", words)
            })?;
            api::Consistency::AtLeast(api::Token { uuid, sequence: token.sequence })
        }
    })
}

pub fn at(at: Option<v1::At>) -> Result<api::At> {
    match at.and_then(|at| at.version) {
        None => Ok(api::At::Now),
        Some(v1::at::Version::Root(text)) => {
            let root = text.parse::<RootId>().map_err(|_| {
                let words = format!("at.root is {text:?}, which is not a root id of 64 hexadecimal digits");
                invalid("BAD_ROOT_ID", words)
            })?;
            Ok(api::At::Root(root))
        }
    }
}

pub fn effort(effort: Option<v1::Effort>) -> Result<api::Effort> {
    use v1::effort::Kind;
    match effort.and_then(|effort| effort.kind) {
        None => Ok(api::Effort::default()),
        Some(Kind::RecallTarget(target)) if (0.80..=1.0).contains(&target) => {
            Ok(api::Effort::RecallTarget(target))
        }
        Some(Kind::RecallTarget(target)) => Err(invalid(
            "INVALID_RECALL_TARGET",
            format!("effort.recall_target is {target}; it must be 0.80 to 1.0"),
        )),
        Some(Kind::Leaves(0)) => Err(invalid("INVALID_EFFORT", "effort.leaves is 0; it must be at least 1")),
        Some(Kind::Leaves(leaves)) => Ok(api::Effort::Leaves(leaves)),
    }
}

pub fn metric(metric: i32) -> Result<api::Metric> {
    match v1::Metric::try_from(metric) {
        Ok(v1::Metric::L2) => Ok(api::Metric::L2),
        Ok(v1::Metric::Cosine) => Ok(api::Metric::Cosine),
        Ok(v1::Metric::Dot) => Ok(api::Metric::Dot),
        _ => Err(invalid("INVALID_METRIC", "config.metric must be l2, cosine or dot")),
    }
}

pub fn wire_metric(metric: api::Metric) -> v1::Metric {
    match metric {
        api::Metric::L2 => v1::Metric::L2,
        api::Metric::Cosine => v1::Metric::Cosine,
        api::Metric::Dot => v1::Metric::Dot,
    }
}

/// Seconds that log entries may be kept: a minute to ten years.
const LOG_RETENTION: std::ops::RangeInclusive<u64> = 60..=315_360_000;

/// The configuration of a new collection, defaults filled in. Names and ranges are the engine's to check.
pub fn create(config: Option<v1::CollectionConfig>) -> Result<api::CreateCollection> {
    let Some(config) = config else { return Err(invalid("CONFIG_MISSING", "config is missing")) };
    let defaults = api::CreateCollection::new(config.name, config.dimension, metric(config.metric)?);
    let copies = match config.copies {
        None => defaults.copies,
        Some(copies @ (1 | 2)) => copies as u8,
        Some(copies) => {
            return Err(invalid("INVALID_COPIES", format!("config.copies is {copies}; it must be 1 or 2")));
        }
    };
    if let Some(seconds) = config.log_retention_seconds.filter(|seconds| !LOG_RETENTION.contains(seconds)) {
        let words =
            format!("config.log_retention_seconds is {seconds}; it must be 60 to {}", LOG_RETENTION.end());
        return Err(invalid("INVALID_LOG_RETENTION", words));
    }
    Ok(api::CreateCollection {
        copies,
        refine: config.refine.unwrap_or(defaults.refine),
        seed: config.seed.unwrap_or(defaults.seed),
        small_limit: config.small_limit.unwrap_or(defaults.small_limit),
        log_retention: config.log_retention_seconds.map_or(defaults.log_retention, Duration::from_secs),
        ..defaults
    })
}

pub fn description(description: api::CollectionDescription) -> v1::Collection {
    let config = description.config;
    v1::Collection {
        config: Some(v1::CollectionConfig {
            name: config.name,
            dimension: config.dimension,
            metric: wire_metric(config.metric).into(),
            copies: Some(config.copies.into()),
            refine: Some(config.refine),
            seed: Some(config.seed),
            small_limit: Some(config.small_limit),
            log_retention_seconds: Some(config.log_retention.as_secs()),
        }),
        uuid: description.uuid.to_string(),
        records: description.records,
        root: root(description.root),
        generation: description.generation,
        sequence: description.sequence,
        tail_records: description.tail_records,
        leaves: description.leaves,
        levels: description.levels,
        index_bytes: description.index_bytes,
        segment_bytes: description.segment_bytes,
        attributes: description
            .attributes
            .into_iter()
            .map(|(name, ty)| (name, wire_attribute_type(ty).into()))
            .collect(),
    }
}

fn wire_attribute_type(ty: AttributeType) -> v1::AttributeType {
    match ty {
        AttributeType::Bool => v1::AttributeType::Bool,
        AttributeType::Int64 => v1::AttributeType::Int64,
        AttributeType::Float64 => v1::AttributeType::Float64,
        AttributeType::String => v1::AttributeType::String,
        AttributeType::Timestamp => v1::AttributeType::Timestamp,
        AttributeType::Bytes => v1::AttributeType::Bytes,
        AttributeType::BoolList => v1::AttributeType::BoolList,
        AttributeType::Int64List => v1::AttributeType::Int64List,
        AttributeType::Float64List => v1::AttributeType::Float64List,
        AttributeType::StringList => v1::AttributeType::StringList,
    }
}

pub fn root_description(root: api::RootDescription) -> v1::Root {
    v1::Root {
        generation: root.generation,
        root: root.root.to_string(),
        sequence: root.sequence,
        depth: root.depth,
        records: root.records,
        readable: root.readable,
    }
}

/// The report of a collection of garbage.
pub fn garbage(report: &api::GarbageReport) -> v1::GarbageReport {
    let ((deleted_objects, deleted_bytes), (kept_objects, kept_bytes)) = (report.deleted(), report.kept());
    let kind = |kind: &api::GarbageOfKind| v1::GarbageOfKind {
        kind: kind.kind.label().to_owned(),
        deleted_objects: kind.deleted,
        deleted_bytes: kind.deleted_bytes,
        kept_objects: kind.kept,
        kept_bytes: kind.kept_bytes,
    };
    v1::GarbageReport {
        dry_run: report.dry_run,
        generation: report.generation,
        log_floor: report.log_floor,
        recent_roots: report.recent_roots,
        held_roots: report.held_roots,
        deleted_objects,
        deleted_bytes,
        kept_objects,
        kept_bytes,
        failed_objects: report.failed,
        kinds: report.kinds.iter().map(kind).collect(),
    }
}

pub fn progress(progress: api::Progress) -> v1::Progress {
    v1::Progress { stage: progress.stage, done: progress.done, total: progress.total }
}

pub fn answer(answer: api::QueryAnswer) -> v1::QueryAnswer {
    let work = answer.work;
    let method = match answer.method {
        api::Method::Approximate => v1::Mode::Approximate,
        api::Method::Exact => v1::Mode::Exact,
    };
    v1::QueryAnswer {
        matches: answer
            .matches
            .into_iter()
            .map(|found| v1::Match { record: Some(wire_record(found.record)), distance: found.distance })
            .collect(),
        complete: answer.complete,
        incomplete_reason: answer.incomplete_reason.unwrap_or_default(),
        method: method.into(),
        work: Some(v1::Work {
            leaves_scanned: work.leaves_scanned,
            codes_scanned: work.codes_scanned,
            codes_refined: work.codes_refined,
            vectors_reranked: work.vectors_reranked,
            tail_rows: work.tail_rows,
        }),
        latency_us: answer.latency.as_micros().try_into().unwrap_or(u64::MAX),
    }
}
