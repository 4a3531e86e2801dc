//! The engine's errors: wide inside, few public kinds. Services map [`ErrorKind`] once to gRPC.

/// What the caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The request is wrong; nothing was done. gRPC INVALID_ARGUMENT.
    InvalidArgument,
    /// No such collection, root or record. NOT_FOUND.
    NotFound,
    /// The name is taken. ALREADY_EXISTS.
    AlreadyExists,
    /// The state forbids it (token ahead of the log, closed collection, expired root). FAILED_PRECONDITION.
    FailedPrecondition,
    /// Somebody else's write came between; try again. ABORTED.
    Aborted,
    /// A limit or back-pressure; try later. RESOURCE_EXHAUSTED.
    ResourceExhausted,
    /// Storage does not answer, or a write's outcome is unknown; repeating is harmless. UNAVAILABLE.
    Unavailable,
    /// The caller's deadline passed; a write's outcome is unknown. DEADLINE_EXCEEDED.
    DeadlineExceeded,
    /// Stored bytes are damaged or missing. DATA_LOSS.
    DataLoss,
    /// A fault of ours. INTERNAL, with an error id whose details are in the log.
    Internal,
}

/// An error for the caller: kind, stable reason, what was wrong and what to do; never a path, key, host or backtrace.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// What the caller can do.
    pub kind: ErrorKind,
    /// A stable machine-readable reason, e.g. `DIMENSION_MISMATCH`.
    pub reason: &'static str,
    /// For people.
    pub message: String,
    /// When to try again, for RESOURCE_EXHAUSTED and UNAVAILABLE.
    pub retry_after: Option<std::time::Duration>,
    /// Position of the offending record in the request.
    pub record: Option<u64>,
    /// The inside, for the log only: services log it under an error id and never send it.
    pub internal: Option<String>,
}

/// The engine's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error of a kind with its stable reason.
    pub fn new(kind: ErrorKind, reason: &'static str, message: impl Into<String>) -> Self {
        Self { kind, reason, message: message.into(), retry_after: None, record: None, internal: None }
    }
    /// The request is wrong.
    pub fn invalid(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidArgument, reason, message)
    }
    /// There is no such thing.
    pub fn not_found(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, reason, message)
    }
    /// Stored bytes are damaged or missing; `what` names the kind of object.
    pub fn data_loss(message: impl Into<String>, internal: impl Into<String>) -> Self {
        Self { internal: Some(internal.into()), ..Self::new(ErrorKind::DataLoss, "DATA_LOSS", message) }
    }
    /// A fault of ours; `internal` goes to the log.
    pub fn internal(internal: impl Into<String>) -> Self {
        Self {
            internal: Some(internal.into()),
            ..Self::new(
                ErrorKind::Internal,
                "INTERNAL",
                "an internal error; the server's log has the details",
            )
        }
    }
    /// Adds the inside story for the log.
    pub fn with_internal(mut self, internal: impl Into<String>) -> Self {
        self.internal = Some(internal.into());
        self
    }
    /// Adds when to try again.
    pub fn with_retry_after(mut self, after: std::time::Duration) -> Self {
        self.retry_after = Some(after);
        self
    }
    /// Names the offending record by its position.
    pub fn with_record(mut self, position: u64) -> Self {
        self.record = Some(position);
        self
    }
}

impl From<pando_store::StoreError> for Error {
    fn from(error: pando_store::StoreError) -> Self {
        use pando_store::ErrorKind as Store;
        let (kind, reason) = match error.kind() {
            // Whoever may meet an absent object asks with `try_get`; elsewhere an absence is a loss.
            Store::NotFound | Store::Corrupt | Store::TooShort => (ErrorKind::DataLoss, "DATA_LOSS"),
            Store::Unclear => (ErrorKind::Unavailable, "OUTCOME_UNKNOWN"),
            Store::Unavailable => (ErrorKind::Unavailable, "STORAGE_UNAVAILABLE"),
            Store::Locked => (ErrorKind::FailedPrecondition, "DATA_DIRECTORY_IN_USE"),
            Store::Unsupported => (ErrorKind::FailedPrecondition, "STORAGE_UNSUPPORTED"),
            Store::Invalid => (ErrorKind::Internal, "INTERNAL"),
        };
        Self::new(kind, reason, error.to_string()).with_internal(error.internal())
    }
}

impl From<pando_format::FormatError> for Error {
    fn from(error: pando_format::FormatError) -> Self {
        use pando_format::FormatError as Format;
        match error {
            Format::Input(input) => input.into(),
            Format::Version { .. } => Self::new(ErrorKind::Unavailable, "NEWER_FORMAT", error.to_string()),
            Format::Damaged { .. } | Format::Checksum { .. } => {
                Self::data_loss(error.to_string(), error.to_string())
            }
            other => Self::internal(other.to_string()),
        }
    }
}

impl From<pando_format::InputError> for Error {
    fn from(error: pando_format::InputError) -> Self {
        Self { record: error.row, ..Self::invalid("INVALID_RECORD", error.to_string()) }
    }
}
