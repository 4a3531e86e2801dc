//! The query role: answers searches from roots and tails.
