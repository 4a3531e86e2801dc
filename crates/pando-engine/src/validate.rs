//! What is refused before anything is done, naming the culprit.

use pando_format::{InputError, RecordId, Rows};
use pando_kernels::Metric;

use crate::api::{Effort, QueryRequest};
use crate::error::{Error, Result};

/// Largest top_k.
pub const MAX_TOP_K: u32 = 10_000;
/// Largest page of a scan.
pub const MAX_PAGE: u32 = 10_000;

/// A vector that may be stored or searched with.
pub fn vector(vector: &[f32], dim: usize, metric: Metric, what: &str) -> Result<()> {
    if vector.len() != dim {
        let message = format!("{what} has {} elements, the collection has dimension {dim}", vector.len());
        return Err(Error::invalid("DIMENSION_MISMATCH", message));
    }
    if let Some(at) = vector.iter().position(|x| !x.is_finite()) {
        let message = format!("element {at} of {what} is {}, it must be a finite number", vector[at]);
        return Err(Error::invalid("NON_FINITE_VECTOR", message));
    }
    let norm2: f64 = vector.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
    if norm2 == 0.0 && metric == Metric::Cosine {
        return Err(Error::invalid(
            "ZERO_VECTOR_COSINE",
            format!("{what} is zero, which has no direction under cosine"),
        ));
    }
    let normal = (f64::from(f32::MIN_POSITIVE)..=f64::from(f32::MAX)).contains(&norm2);
    if norm2 != 0.0 && !normal {
        let message = format!("the squared norm of {what} is {norm2:e}, which f32 cannot hold");
        return Err(Error::invalid("NORM_OUT_OF_RANGE", message));
    }
    Ok(())
}

/// Records of an upsert.
pub fn rows(rows: &Rows, dim: usize, metric: Metric) -> Result<()> {
    if rows.dim() != dim {
        let message = format!("the vectors have {} elements, the collection has dimension {dim}", rows.dim());
        return Err(Error::invalid("DIMENSION_MISMATCH", message).with_record(0));
    }
    rows.validate(metric).map_err(|error| {
        let reason = match error.what.as_str() {
            what if what.contains("zero") => "ZERO_VECTOR_COSINE",
            what if what.contains("norm") => "NORM_OUT_OF_RANGE",
            _ => "INVALID_RECORD",
        };
        Error { reason, ..Error::from(error) }
    })
}

/// Ids of a delete or fetch.
pub fn ids(ids: &[RecordId]) -> Result<()> {
    for (at, id) in ids.iter().enumerate() {
        id.check().map_err(|error: InputError| {
            Error::invalid("INVALID_ID", format!("id {at}: {}", error.what)).with_record(at as u64)
        })?;
    }
    Ok(())
}

/// A query.
pub fn query(request: &QueryRequest, dim: usize, metric: Metric) -> Result<()> {
    top_k(request.top_k)?;
    effort(request.effort)?;
    if let Some(epsilon) = request.epsilon
        && !(0.0..=100.0).contains(&epsilon)
    {
        return Err(Error::invalid("INVALID_EPSILON", format!("epsilon is {epsilon}, it must be 0 to 100")));
    }
    for (at, query) in request.vectors.iter().enumerate() {
        vector(query, dim, metric, &format!("query vector {at}")).map_err(|e| e.with_record(at as u64))?;
    }
    Ok(())
}

/// Number of results.
pub fn top_k(top_k: u32) -> Result<()> {
    if (1..=MAX_TOP_K).contains(&top_k) {
        return Ok(());
    }
    Err(Error::invalid("INVALID_TOP_K", format!("top_k is {top_k}, it must be 1 to {MAX_TOP_K}")))
}

/// Effort.
pub fn effort(effort: Effort) -> Result<()> {
    match effort {
        Effort::RecallTarget(target) if (0.8..=1.0).contains(&target) => Ok(()),
        Effort::RecallTarget(target) => Err(Error::invalid(
            "INVALID_RECALL_TARGET",
            format!("recall_target is {target}, it must be 0.8 to 1.0"),
        )),
        Effort::Leaves(0) => Err(Error::invalid("INVALID_EFFORT", "leaves is 0, it must be at least 1")),
        Effort::Leaves(_) => Ok(()),
    }
}

/// Page of a scan.
pub fn page_size(page_size: u32) -> Result<usize> {
    if (1..=MAX_PAGE).contains(&page_size) {
        return Ok(page_size as usize);
    }
    Err(Error::invalid("INVALID_PAGE_SIZE", format!("page_size is {page_size}, it must be 1 to {MAX_PAGE}")))
}
