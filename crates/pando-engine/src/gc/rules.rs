//! What may be deleted and what may be named: pure, so that the model in the tests and the sweep share them. What holds for
//! the log is in [`crate::log::belief`].

/// Whether an object of a root of this depth may be deleted, when `up_to_depth` is the depth of the head that was read
/// before kept roots were marked, and `held` says whether a kept root reaches it.
///
/// A root in flight is deeper than the head that it builds on. What it takes over is reached by that head's root, which was
/// kept; what it adds is as deep as itself.
pub fn may_delete(depth: u64, up_to_depth: u64, held: bool) -> bool {
    !held && depth <= up_to_depth
}

/// The oldest generation whose root is kept for its age. `newest_old`: the newest head that is as old as the retention. Its
/// root was the newest until its successor came, which is younger: a read may have begun on it since.
pub fn oldest_kept(newest_old: Option<u64>) -> u64 {
    newest_old.unwrap_or(1)
}

/// Whether a name (a tag, a pin) for a root of this depth, which was written before the marks were looked at, holds the
/// root. `marked`: the greatest depth of all marks.
#[cfg_attr(not(test), expect(dead_code, reason = "for tags and pins; the model covers it"))]
pub fn may_name(depth: u64, marked: Option<u64>) -> bool {
    marked.is_none_or(|marked| depth > marked)
}
