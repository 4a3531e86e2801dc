//! Id runs of the new root: one run a level, each level ten times as large as the one below.
//!
//! The new ids enter at level 0. A level that would hold more than its limit passes everything on to the next. What is
//! merged sheds pairs whose row died.

use pando_format::{IdKind, IdRun, IdRunBuilder, Manifest, PackKind, PendingIdRun, RecordId, merge_ids};

use super::collapse::Collapsed;
use super::constants::{RUN_BASE, RUN_RATIO};
use super::context::Context;
use super::live::Condemned;
use super::packs::Packs;
use crate::error::{Error, Result};
use crate::rootio::{IdRunCursor, newest_first};

/// A run of the new root, before its pack has a name.
pub enum RunDraft {
    /// As it is in the parent root.
    Kept(IdRun),
    /// Written into the pack of this number.
    New(PendingIdRun, usize),
}

/// What a run is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Merge<'a> {
    level: u8,
    /// The plan's own ids take part.
    new: bool,
    /// Older runs, newest first.
    old: Vec<&'a IdRun>,
}

/// Ids with their rows, ascending.
type Pairs<'a> = Box<dyn Iterator<Item = Result<(RecordId, u64)>> + 'a>;

/// Ids that a level may hold.
fn capacity(level: u8) -> u64 {
    RUN_BASE.saturating_mul(RUN_RATIO.saturating_pow(u32::from(level)))
}

/// The runs of one kind after `new` ids come in.
fn levels(runs: &[IdRun], kind: IdKind, new: u64) -> Vec<Merge<'_>> {
    let old = newest_first(runs, kind);
    let mut out = Vec::new();
    let mut carry = Merge { level: 0, new: true, old: Vec::new() };
    let mut count = new;
    let mut placed = new == 0;
    let top = old.last().map_or(0, |run| run.level);
    for level in 0..=u8::MAX {
        let here: Vec<&IdRun> = old.iter().copied().filter(|run| run.level == level).collect();
        if placed {
            out.extend(here.into_iter().map(|run| Merge { level, new: false, old: vec![run] }));
        } else {
            count = count.saturating_add(here.iter().map(|run| run.ids).sum());
            carry.old.extend(here);
            if count <= capacity(level) || level == u8::MAX {
                out.push(Merge { level, ..carry.clone() });
                placed = true;
            }
        }
        if placed && level >= top {
            break;
        }
    }
    out
}

/// Writes the runs that change. `lives`: whether a row is live in the new root.
pub fn write(
    ctx: &Context,
    parent: Option<&Manifest>,
    ids: &Collapsed,
    condemned: &Condemned,
    lives: &dyn Fn(u64) -> bool,
    packs: &mut Packs<'_>,
) -> Result<Vec<RunDraft>> {
    let runs = parent.map_or(&[][..], |p| &p.id_runs);
    let mut out = Vec::new();
    for kind in [IdKind::U64, IdKind::Str] {
        let fresh: Box<dyn Iterator<Item = (RecordId, u64)> + '_> = match kind {
            IdKind::U64 => Box::new(ids.live_ints().map(|(id, row)| (RecordId::U64(id), row))),
            IdKind::Str => Box::new(ids.live_strs().map(|(id, row)| (RecordId::Str(id.to_owned()), row))),
        };
        let count = match kind {
            IdKind::U64 => ids.live_ints().count(),
            IdKind::Str => ids.live_strs().count(),
        };
        let mut fresh = Some(fresh);
        for merge in levels(runs, kind, count as u64) {
            ctx.check_cancel()?;
            if let (false, [run]) = (merge.new, &merge.old[..])
                && !moves(run, condemned)
            {
                out.push(RunDraft::Kept((*run).clone()));
                continue;
            }
            let fresh = if merge.new { fresh.take() } else { None };
            let mut streams: Vec<Pairs<'_>> = Vec::new();
            streams.extend(fresh.map(|f| Box::new(f.map(Ok)) as Pairs<'_>));
            for run in &merge.old {
                streams.push(Box::new(IdRunCursor::new(&ctx.io, ctx.waiter.clone(), run)));
            }
            let pairs = merge_ids(streams).filter(|pair| pair.as_ref().map_or(true, |(_, row)| lives(*row)));
            out.extend(write_run(kind, merge.level, pairs, packs)?);
        }
    }
    Ok(out)
}

/// Whether a run is to be written again because a pack of it is mostly dead.
fn moves(run: &IdRun, condemned: &Condemned) -> bool {
    let bytes = run.parts.iter().map(|part| part.bytes + u64::from(part.index.len)).sum();
    run.parts.iter().any(|part| condemned.has(&part.index.pack)) && condemned.spend(bytes)
}

/// Writes a run; nothing, and no pack, for one without ids.
fn write_run(
    kind: IdKind,
    level: u8,
    pairs: impl Iterator<Item = Result<(RecordId, u64)>>,
    packs: &mut Packs<'_>,
) -> Result<Option<RunDraft>> {
    let failed = |e| Error::internal(format!("writing an id run: {e}"));
    let mut pairs = pairs.peekable();
    if pairs.peek().is_none() {
        return Ok(None);
    }
    let mut builder = IdRunBuilder::new(kind, level);
    let (run, pack) = packs.write_with(PackKind::Ids, |pack| {
        for pair in pairs {
            let (id, row) = pair?;
            builder.push(id, row, pack).map_err(failed)?;
        }
        builder.finish(pack).map_err(failed)
    })?;
    Ok(Some(RunDraft::New(run, pack)))
}

impl RunDraft {
    /// The manifest's entry, once packs are sealed.
    pub fn run(self, packs: &Packs<'_>) -> Result<IdRun> {
        match self {
            Self::Kept(run) => Ok(run),
            Self::New(run, pack) => Ok(run.at(packs.name(pack)?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(level: u8, ids: u64) -> IdRun {
        IdRun { kind: IdKind::U64, level, ids, parts: Vec::new() }
    }

    fn shape(runs: &[IdRun], new: u64) -> Vec<(u8, bool, Vec<u64>)> {
        let merges = levels(runs, IdKind::U64, new);
        merges.into_iter().map(|m| (m.level, m.new, m.old.iter().map(|r| r.ids).collect())).collect()
    }

    #[test]
    fn levels_fill_up_and_pass_on() {
        // Nearly a full lowest level, a little, nearly a full second level, a good part of the third.
        let (low, few) = (RUN_BASE * 9 / 10, RUN_BASE / 7);
        let (middle, high) = (RUN_BASE * 99 / 10, RUN_BASE * 15);
        assert_eq!(shape(&[], 0), vec![]);
        assert_eq!(shape(&[], 10), vec![(0, true, vec![])]);
        assert_eq!(shape(&[], high), vec![(2, true, vec![])]);
        assert_eq!(shape(&[run(2, high)], 10), vec![(0, true, vec![]), (2, false, vec![high])]);
        let runs = [run(0, low), run(2, high)];
        assert_eq!(shape(&runs, 10), vec![(0, true, vec![low]), (2, false, vec![high])]);
        assert_eq!(shape(&runs, few), vec![(1, true, vec![low]), (2, false, vec![high])]);
        let runs = [run(0, low), run(1, middle), run(2, high)];
        assert_eq!(shape(&runs, few), vec![(2, true, vec![low, middle, high])]);
        assert_eq!(
            shape(&runs, 0),
            vec![(0, false, vec![low]), (1, false, vec![middle]), (2, false, vec![high])]
        );
    }

    #[test]
    fn few_ids_are_written_many_times() {
        let (mut runs, mut written) = (Vec::new(), 0);
        for _ in 0..1_000 {
            let next: Vec<IdRun> = levels(&runs, IdKind::U64, 10_000)
                .iter()
                .map(|m| {
                    let ids = m.old.iter().map(|r| r.ids).sum::<u64>() + if m.new { 10_000 } else { 0 };
                    written += if m.new { ids } else { 0 };
                    run(m.level, ids)
                })
                .collect();
            runs = next;
        }
        assert_eq!(runs.iter().map(|r| r.ids).sum::<u64>(), 10_000_000);
        assert!(runs.len() <= 4);
        assert!(written <= 20 * 10_000_000, "{written}");
    }
}
