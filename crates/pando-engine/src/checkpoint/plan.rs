//! The plan of a checkpoint: created once for each parent root, read by everybody else.

use bytes::Bytes;
use pando_format::{ALGORITHM_VERSION, Entry, Head, Plan, PlanContents, RootId, Stored};
use pando_store::{CreateOutcome, Key, Series};

use super::constants::{PLAN_BYTES, PLAN_ROWS};
use crate::error::{Error, ErrorKind, Result};
use crate::rootio::{RootIo, damaged, stored, undecodable};

/// What a checkpoint builds on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Base {
    /// Generation of the newest head; 0 before the first.
    pub generation: u64,
    /// Its root and depth.
    pub root: Option<(RootId, u64)>,
    /// Last log entry that it covers.
    pub sequence: u64,
    /// Row number of the next entry's first record.
    pub next_row: u64,
    /// Rows of the log so far.
    pub cumulative_rows: u64,
    /// Bytes of the log so far.
    pub cumulative_bytes: u64,
}

impl Base {
    /// What the newest head says; without one, the beginning (of a fork: where it was forked).
    pub fn of(io: &RootIo, head: Option<&Head>) -> Self {
        match head {
            Some(head) => Self {
                generation: head.generation,
                root: head.root.map(|r| (r.root, r.depth)),
                sequence: head.sequence,
                next_row: head.next_row,
                cumulative_rows: head.cumulative_rows,
                cumulative_bytes: head.cumulative_bytes,
            },
            None => match io.record().forked {
                Some(fork) => Self {
                    root: Some((fork.root, fork.depth)),
                    sequence: fork.sequence,
                    next_row: fork.next_row,
                    ..Self::default()
                },
                None => Self::default(),
            },
        }
    }

    /// Depth of the next root.
    pub fn next_depth(&self) -> u64 {
        self.root.map_or(0, |(_, depth)| depth) + 1
    }

    fn plan_key(&self, io: &RootIo, number: u64) -> Key {
        let parent = self.root.map_or([0; 32], |(root, _)| root.0);
        Key::Plan { uuid: io.record().uuid.0, depth: self.next_depth(), parent, n: number }
    }
}

/// The plan of the checkpoint after `base`: the newest that was made (an operator's commands raise the number), or a
/// new one. `None`: there is no entry to cover. `log_end`: an entry that is known to exist, to save probing.
pub async fn plan(io: &RootIo, base: &Base, log_end: u64) -> Result<Option<PlanContents>> {
    if let Some(plan) = newest(io, base).await? {
        return Ok(Some(plan));
    }
    let uuid = io.record().uuid.0;
    let hint = log_end.max(base.sequence);
    let end = io.store().newest_after(&Series::Log(uuid), base.sequence, hint).await.map_err(stored)?;
    if end <= base.sequence {
        return Ok(None);
    }
    let end_sequence = bounded_end(io, base, end).await?;
    let contents = PlanContents { end_sequence, algorithm: ALGORITHM_VERSION, stepped_over: Vec::new() };
    let parent = base.root.map(|(root, _)| root);
    let plan = Plan { depth: base.next_depth(), parent, number: 0, contents };
    let bytes = Bytes::from(plan.encode().map_err(|e| Error::internal(format!("encoding a plan: {e}")))?);
    let key = base.plan_key(io, 0);
    for _ in 0..5 {
        match io.store().create_if_absent(&key, bytes.clone()).await {
            Ok(CreateOutcome::Created) => return Ok(Some(plan.contents)),
            Ok(CreateOutcome::Exists) => {}
            Err(e) if e.is_unclear() => {}
            Err(e) => return Err(stored(e)),
        }
        // Somebody else's plan, or our own whose answer was lost: what is stored counts.
        if let Some(plan) = newest(io, base).await? {
            return Ok(Some(plan));
        }
    }
    Err(Error::new(
        ErrorKind::Unavailable,
        "STORAGE_UNAVAILABLE",
        "storage did not take the checkpoint's plan",
    ))
}

async fn newest(io: &RootIo, base: &Base) -> Result<Option<PlanContents>> {
    let mut found = None;
    for number in 0.. {
        let key = base.plan_key(io, number);
        let Some(bytes) = io.store().try_get(&key).await.map_err(stored)? else { break };
        let plan = Plan::decode(&bytes).map_err(|e| undecodable(e, &key))?;
        let parent = base.root.map(|(root, _)| root);
        if plan.depth != base.next_depth() || plan.parent != parent || plan.number != number {
            return Err(damaged("checkpoint plan: it is not the one its key names"));
        }
        if plan.contents.end_sequence <= base.sequence {
            return Err(damaged("checkpoint plan: it ends before it begins"));
        }
        found = Some(plan.contents);
    }
    if let Some(plan) = &found
        && plan.algorithm != ALGORITHM_VERSION
    {
        return Err(Error::new(
            ErrorKind::Unavailable,
            "NEWER_FORMAT",
            format!(
                "the next checkpoint is to run index algorithm {}, which this release does not have",
                plan.algorithm
            ),
        ));
    }
    Ok(found)
}

/// The last entry up to `end` that keeps the plan within its bounds; at least one entry.
async fn bounded_end(io: &RootIo, base: &Base, end: u64) -> Result<u64> {
    let (mut low, mut high) = (base.sequence + 1, end);
    if fits(io, base, high).await? {
        return Ok(high);
    }
    // `low` is taken in any case; cumulative counts ascend.
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        if fits(io, base, middle).await? {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(low)
}

async fn fits(io: &RootIo, base: &Base, sequence: u64) -> Result<bool> {
    let key = Key::Log { uuid: io.record().uuid.0, sequence };
    let bytes = io.store().get(&key).await.map_err(stored)?;
    let entry = Entry::decode(&bytes).map_err(|e| undecodable(e, &key))?;
    Ok(entry.cumulative_rows.saturating_sub(base.cumulative_rows) <= PLAN_ROWS
        && entry.cumulative_bytes.saturating_sub(base.cumulative_bytes) <= PLAN_BYTES)
}
