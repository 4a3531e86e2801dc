//! The limits of the API (DESIGN.md section 9), checked before any work.

use pando_engine::ErrorKind;
use pando_proto::MAX_MESSAGE_BYTES;
use prost::Message;
use tonic::Status;

use crate::errors::{invalid, refuse};

/// Largest `top_k`.
pub const MAX_TOP_K: u32 = 10_000;
/// Most vectors of one Query.
pub const MAX_QUERY_VECTORS: usize = 1024;
/// Most vectors of one MeasureRecall.
pub const MAX_RECALL_VECTORS: usize = 100_000;
/// Most ids of one Fetch.
pub const MAX_FETCH_IDS: usize = 10_000;
/// Largest page.
pub const MAX_PAGE: u32 = 10_000;
/// Page size where none is given.
pub const DEFAULT_PAGE: u32 = 1000;
/// Longest idempotency key in bytes.
pub const MAX_KEY_BYTES: usize = 128;

/// `top_k` within 1 to 10,000.
pub fn top_k(top_k: u32) -> Result<u32, Status> {
    if (1..=MAX_TOP_K).contains(&top_k) {
        return Ok(top_k);
    }
    Err(invalid("INVALID_TOP_K", format!("top_k is {top_k}; it must be 1 to {MAX_TOP_K}")))
}

/// A page size within 1 to 10,000.
pub fn page_size(page_size: Option<u32>) -> Result<u32, Status> {
    match page_size {
        None => Ok(DEFAULT_PAGE),
        Some(size) if (1..=MAX_PAGE).contains(&size) => Ok(size),
        Some(size) => {
            Err(invalid("INVALID_PAGE_SIZE", format!("page_size is {size}; it must be 1 to {MAX_PAGE}")))
        }
    }
}

/// Some of `field`, and at most `most`.
pub fn some(field: &str, count: usize, most: usize) -> Result<(), Status> {
    match count {
        0 => Err(invalid("EMPTY_REQUEST", format!("{field} is empty"))),
        count if count > most => Err(invalid(
            "TOO_MANY_ITEMS",
            format!("{field} has {count} items, more than the {most} of one call; send several calls"),
        )),
        _ => Ok(()),
    }
}

/// An idempotency key, if any.
pub fn idempotency_key(key: String) -> Result<Option<String>, Status> {
    match key.len() {
        0 => Ok(None),
        1..=MAX_KEY_BYTES => Ok(Some(key)),
        bytes => Err(invalid(
            "INVALID_IDEMPOTENCY_KEY",
            format!("the idempotency key has {bytes} bytes, more than {MAX_KEY_BYTES}"),
        )),
    }
}

/// A request of at most 64 MiB.
pub fn request_size(bytes: usize, way_out: &str) -> Result<(), Status> {
    if bytes <= MAX_MESSAGE_BYTES {
        return Ok(());
    }
    let words = format!(
        "the request has {bytes} bytes, more than the {MAX_MESSAGE_BYTES} (64 MiB) of one message; {way_out}"
    );
    Err(refuse(ErrorKind::ResourceExhausted, "MESSAGE_TOO_LARGE", words))
}

/// An answer that is known beforehand to pass 64 MiB is not worked out.
pub fn answer_size(bytes: u64) -> Result<(), Status> {
    if bytes <= MAX_MESSAGE_BYTES as u64 {
        return Ok(());
    }
    let words = format!(
        "the answer would have {bytes} bytes, more than the {MAX_MESSAGE_BYTES} (64 MiB) of one message; \
         ask for fewer records or vectors a call, leave vectors out, or use Scan"
    );
    Err(refuse(ErrorKind::ResourceExhausted, "ANSWER_TOO_LARGE", words))
}

/// The answer, if it fits.
pub fn fitting<M: Message>(answer: M) -> Result<M, Status> {
    answer_size(answer.encoded_len() as u64)?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use pando_proto::v1;
    use tonic::Code;

    use super::*;

    #[test]
    fn limits_name_what_is_wrong_and_what_is_allowed() {
        assert!(top_k(1).is_ok() && top_k(10_000).is_ok());
        for bad in [0, 10_001, 1 << 31, u32::MAX] {
            let status = top_k(bad).unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument);
            assert!(
                status.message().contains(&bad.to_string()) && status.message().contains("10000"),
                "{status}"
            );
        }
        assert_eq!(page_size(None).unwrap(), DEFAULT_PAGE);
        assert_eq!(page_size(Some(1)).unwrap(), 1);
        assert!(page_size(Some(0)).is_err() && page_size(Some(u32::MAX)).is_err());
        assert!(some("ids", 0, 10).is_err() && some("ids", 10, 10).is_ok() && some("ids", 11, 10).is_err());
        assert_eq!(idempotency_key(String::new()).unwrap(), None);
        assert!(idempotency_key("k".repeat(128)).is_ok() && idempotency_key("k".repeat(129)).is_err());
        assert_eq!(request_size((64 << 20) + 1, "…").unwrap_err().code(), Code::ResourceExhausted);
    }

    #[test]
    fn an_answer_over_64_mib_is_refused_with_a_way_out() {
        let vector = v1::Vector { values: vec![0.0; 16_384] };
        let record = v1::Record { vector: Some(vector), ..Default::default() };
        let result = v1::FetchResult { record: Some(record), ..Default::default() };
        let small = v1::FetchResponse { results: vec![result.clone(); 1000], ..Default::default() };
        assert!(fitting(small).is_ok());
        let large = v1::FetchResponse { results: vec![result; 1025], ..Default::default() };
        let status = fitting(large).unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert!(status.message().contains("64 MiB"), "{status}");
    }
}
