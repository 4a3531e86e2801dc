//! The compactor role: grows the next root.
