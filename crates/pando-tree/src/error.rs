//! What can go wrong while a tree is built, advanced or read.

/// Why an operation on a tree did not finish.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// The vector source could not deliver a row's vector.
    #[error("reading vectors: {0}")]
    Source(Box<dyn std::error::Error + Send + Sync>),
    /// The caller raised the cancel flag.
    #[error("cancelled")]
    Cancelled,
    /// An argument contradicts the configuration or the tree.
    #[error("invalid argument: {0}")]
    Invalid(String),
    /// An invariant of the tree does not hold (law 4 and the shape rules of `check`).
    #[error("broken tree: {0}")]
    Broken(String),
}

impl TreeError {
    /// Wraps an error of the vector source.
    pub fn source(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Source(error.into())
    }
}
