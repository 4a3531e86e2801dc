//! Errors for callers: the engine's few kinds, mapped once. The inside never leaves; it goes to the log under an error id.

use std::collections::HashMap;
use std::time::Duration;

use pando_engine::{Error, ErrorKind};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

/// The domain of all reasons.
pub const DOMAIN: &str = "pando";

/// Longest message that is sent: it travels in a header.
const LONGEST_MESSAGE: usize = 2000;

/// The gRPC code of an error kind.
pub fn code(kind: ErrorKind) -> Code {
    match kind {
        ErrorKind::InvalidArgument => Code::InvalidArgument,
        ErrorKind::NotFound => Code::NotFound,
        ErrorKind::AlreadyExists => Code::AlreadyExists,
        ErrorKind::FailedPrecondition => Code::FailedPrecondition,
        ErrorKind::Aborted => Code::Aborted,
        ErrorKind::ResourceExhausted => Code::ResourceExhausted,
        ErrorKind::Unavailable => Code::Unavailable,
        ErrorKind::DeadlineExceeded => Code::DeadlineExceeded,
        ErrorKind::DataLoss => Code::DataLoss,
        ErrorKind::Internal => Code::Internal,
    }
}

/// The status of an engine error; `list` is the request's field whose items [`Error::record`] counts.
pub fn status_in(list: &str, error: Error) -> Status {
    let code = code(error.kind);
    let message = shorten(error.message);
    let mut info = HashMap::new();
    let mut details = ErrorDetails::new();
    if let Some(record) = error.record {
        info.insert("record".to_owned(), record.to_string());
        details.add_bad_request_violation(format!("{list}[{record}]"), message.as_str());
    }
    // Where waiting helps, the caller is told how long, even if the engine left it open.
    let retry = match error.kind {
        ErrorKind::Unavailable | ErrorKind::Aborted => {
            Some(error.retry_after.unwrap_or(Duration::from_millis(100)))
        }
        _ => error.retry_after,
    };
    if retry.is_some() {
        details.set_retry_info(retry);
    }
    if let Some(inside) = &error.internal {
        let error_id = error_id();
        tracing::error!(error_id, reason = error.reason, ?code, inside, "{message}");
        if matches!(error.kind, ErrorKind::Internal | ErrorKind::DataLoss) {
            info.insert("error_id".to_owned(), error_id.clone());
            details.set_request_info(error_id, "");
        }
    }
    details.set_error_info(error.reason, DOMAIN, info);
    Status::with_error_details(code, message, details)
}

/// The status of an engine error in a list of records.
pub fn status(error: Error) -> Status {
    status_in("records", error)
}

/// A refusal of the gateway's own.
pub fn refuse(kind: ErrorKind, reason: &'static str, message: impl Into<String>) -> Status {
    status(Error::new(kind, reason, message))
}

/// A request that is wrong.
pub fn invalid(reason: &'static str, message: impl Into<String>) -> Status {
    refuse(ErrorKind::InvalidArgument, reason, message)
}

/// What is not there (yet).
pub fn unimplemented(message: impl Into<String>) -> Status {
    let details = ErrorDetails::with_error_info("UNIMPLEMENTED", DOMAIN, HashMap::new());
    Status::with_error_details(Code::Unimplemented, message, details)
}

/// A fault of ours: the caller gets an error id, the log the inside.
pub fn internal(inside: impl Into<String>) -> Status {
    status(Error::internal(inside))
}

/// Sixteen hexadecimal digits that find an error in the log.
fn error_id() -> String {
    let mut id = uuid::Uuid::new_v4().simple().to_string();
    id.truncate(16);
    id
}

fn shorten(mut message: String) -> String {
    if message.len() > LONGEST_MESSAGE {
        let mut end = LONGEST_MESSAGE;
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        message.truncate(end);
        message.push('…');
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every kind, its code, and whether the caller is told when to try again.
    #[test]
    fn every_kind_has_its_code_and_reason() {
        let table = [
            (ErrorKind::InvalidArgument, Code::InvalidArgument, false),
            (ErrorKind::NotFound, Code::NotFound, false),
            (ErrorKind::AlreadyExists, Code::AlreadyExists, false),
            (ErrorKind::FailedPrecondition, Code::FailedPrecondition, false),
            (ErrorKind::Aborted, Code::Aborted, true),
            (ErrorKind::ResourceExhausted, Code::ResourceExhausted, false),
            (ErrorKind::Unavailable, Code::Unavailable, true),
            (ErrorKind::DeadlineExceeded, Code::DeadlineExceeded, false),
            (ErrorKind::DataLoss, Code::DataLoss, false),
            (ErrorKind::Internal, Code::Internal, false),
        ];
        for (kind, code, retry) in table {
            let status = status(Error::new(kind, "SOME_REASON", "words"));
            assert_eq!(status.code(), code, "{kind:?}");
            assert_eq!(status.message(), "words");
            let details = status.get_error_details();
            let info = details.error_info().unwrap();
            assert_eq!((info.reason.as_str(), info.domain.as_str()), ("SOME_REASON", "pando"));
            assert_eq!(details.retry_info().is_some(), retry, "{kind:?}");
        }
    }

    #[test]
    fn a_record_is_named_and_a_wait_is_passed_on() {
        let error = Error::invalid("DIMENSION_MISMATCH", "3 elements, not 4").with_record(12);
        let details = status(error).get_error_details();
        assert_eq!(details.bad_request().unwrap().field_violations[0].field, "records[12]");
        assert_eq!(details.error_info().unwrap().metadata["record"], "12");

        let busy = Error::new(ErrorKind::ResourceExhausted, "BACKLOG_FULL", "busy")
            .with_retry_after(Duration::from_millis(750));
        let details = status(busy).get_error_details();
        assert_eq!(details.retry_info().unwrap().retry_delay, Some(Duration::from_millis(750)));
    }

    #[test]
    fn the_inside_stays_inside_under_an_error_id() {
        for error in [
            Error::internal("/secret/path at host:1"),
            Error::data_loss("a block is damaged", "/secret/path at host:1"),
            Error::new(ErrorKind::Unavailable, "STORAGE", "storage does not answer")
                .with_internal("/secret/path"),
        ] {
            let kind = error.kind;
            let status = status(error);
            let details = status.get_error_details();
            assert!(!format!("{status:?} {details:?}").contains("secret"), "{status:?}");
            let id = details.request_info().map(|request| request.request_id.len());
            assert_eq!(id, (kind != ErrorKind::Unavailable).then_some(16));
        }
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        let message = invalid("X", "é".repeat(LONGEST_MESSAGE)).message().to_owned();
        assert!(message.len() <= LONGEST_MESSAGE + 3 && message.ends_with('…'));
    }
}
