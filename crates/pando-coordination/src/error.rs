//! The one error type of this crate.

/// Coordination could not be reached or refused. Never a reason to fail a read or a write: go on without it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CoordinationError {
    /// The backend is away, or did not answer in time. The text is for the log.
    #[error("coordination is not available")]
    Unavailable {
        /// The backend's own words; may name hosts.
        internal: String,
    },
}
