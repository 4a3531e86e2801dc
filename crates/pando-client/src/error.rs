//! What a call can come to.

use std::time::Duration;

use tonic::{Code, Status};
use tonic_types::StatusExt;

/// A result of the client.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failed call: the server's own words, and what they say in machine-readable form.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// The gRPC code.
    pub code: Code,
    /// Pando's stable reason, such as `DIMENSION_MISMATCH`; empty where the server gave none.
    pub reason: String,
    /// For people.
    pub message: String,
    /// When the server asks to be tried again.
    pub retry_after: Option<Duration>,
    /// Position of the offending record in the request.
    pub record: Option<u64>,
    /// Finds the details of a fault in the server's log.
    pub error_id: Option<String>,
}

impl Error {
    /// An error that arose on this side.
    pub fn local(code: Code, reason: &str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason: reason.into(),
            message: message.into(),
            retry_after: None,
            record: None,
            error_id: None,
        }
    }

    /// Whether the same call may succeed later. A write may be repeated only with its idempotency key.
    pub fn is_retryable(&self) -> bool {
        match self.code {
            Code::Unavailable | Code::Aborted => true,
            // Without a time to wait it is a limit that waiting does not lift, such as a message that is too large.
            Code::ResourceExhausted => self.retry_after.is_some(),
            _ => false,
        }
    }
}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        // A status with a cause was made on this side: no server sent it.
        if let Some(cause) = std::error::Error::source(&status)
            && status.details().is_empty()
            && !matches!(status.code(), Code::OutOfRange | Code::ResourceExhausted)
        {
            let words = format!("the connection to the server was lost: {}", deepest(cause));
            return Self::local(Code::Unavailable, "CONNECTION_LOST", words);
        }
        let details = status.get_error_details();
        let info = details.error_info();
        let message = match (status.message(), details.request_info()) {
            ("", _) => format!("the call failed with {:?}", status.code()),
            (message, Some(request)) => format!("{message} (error id {})", request.request_id),
            (message, None) => message.to_owned(),
        };
        Self {
            code: status.code(),
            reason: info.map(|info| info.reason.clone()).unwrap_or_default(),
            message,
            retry_after: details.retry_info().and_then(|retry| retry.retry_delay),
            record: info.and_then(|info| info.metadata.get("record")?.parse().ok()),
            error_id: details.request_info().map(|request| request.request_id.clone()),
        }
    }
}

/// The innermost cause: "Connection refused" says more than "transport error".
pub(crate) fn deepest(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => deepest(source),
        None => error.to_string(),
    }
}
