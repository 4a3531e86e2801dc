//! What a read works on: one root, and the log entries past it.

use std::sync::Arc;

use pando_tree::search::Nav;

use crate::root::OpenRoot;
use crate::tail::Tail;

/// A root (none before the first checkpoint) and the tail past it. A read also has a position: the last log entry
/// that it sees, at least the root's.
pub struct View {
    /// The root.
    pub root: Option<Arc<OpenRoot>>,
    /// Its head's number; 0 without a root.
    pub generation: u64,
    /// Log entries at or below this may be gone.
    pub log_floor: u64,
    /// Entries past the root.
    pub tail: Arc<Tail>,
    empty: Option<Nav>,
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "View({:?}, {:?})", self.root, self.tail)
    }
}

impl View {
    /// A view of `root`, of which `tail` is the continuation.
    pub fn new(root: Option<Arc<OpenRoot>>, generation: u64, log_floor: u64, tail: Arc<Tail>) -> Self {
        let empty = root.is_none().then(|| Nav::empty(tail.frame().clone()));
        Self { root, generation, log_floor, tail, empty }
    }

    /// Navigation of the root, or one without leaves.
    pub fn nav(&self) -> &Nav {
        match (&self.root, &self.empty) {
            (Some(root), _) => root.nav(),
            (None, Some(nav)) => nav,
            (None, None) => unreachable!("a view without a root has an empty navigation"),
        }
    }

    /// Live records at `position`.
    pub fn count(&self, position: u64) -> u64 {
        let root = self.root.as_ref().map_or(0, |root| root.manifest().counts.live);
        root.saturating_add_signed(self.tail.read().live_change(position))
    }
}
