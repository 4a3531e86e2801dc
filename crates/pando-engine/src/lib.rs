//! The collection engine: log, head, checkpoint, roots, tail and queries.
