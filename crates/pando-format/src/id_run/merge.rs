//! Merge of sorted (id, row) streams where the newest stream wins.

use crate::ids::RecordId;

/// Merges streams in ascending order of id, newest stream first. Of several pairs with one id the one from
/// the newest stream is kept. The first error ends the merge.
pub fn merge_ids<I, E>(newest_first: Vec<I>) -> impl Iterator<Item = Result<(RecordId, u64), E>>
where
    I: Iterator<Item = Result<(RecordId, u64), E>>,
{
    Merge { heads: newest_first.iter().map(|_| None).collect(), sources: newest_first, state: State::Fresh }
}

enum State {
    Fresh,
    Running,
    Done,
}

struct Merge<I> {
    sources: Vec<I>,
    heads: Vec<Option<(RecordId, u64)>>,
    state: State,
}

impl<I, E> Merge<I>
where
    I: Iterator<Item = Result<(RecordId, u64), E>>,
{
    fn refill(&mut self, i: usize) -> Result<(), E> {
        self.heads[i] = self.sources[i].next().transpose()?;
        Ok(())
    }

    fn step(&mut self) -> Result<Option<(RecordId, u64)>, E> {
        if matches!(self.state, State::Fresh) {
            for i in 0..self.sources.len() {
                self.refill(i)?;
            }
            self.state = State::Running;
        }
        // Few streams: one per level. The first of equal heads is the newest.
        let mut best: Option<usize> = None;
        for (i, head) in self.heads.iter().enumerate() {
            let Some((id, _)) = head else { continue };
            let smaller =
                best.is_none_or(|b| self.heads[b].as_ref().is_some_and(|(best_id, _)| id < best_id));
            if smaller {
                best = Some(i);
            }
        }
        let Some(best) = best else { return Ok(None) };
        let taken = self.heads[best].take();
        self.refill(best)?;
        if let Some((id, _)) = &taken {
            for i in 0..self.heads.len() {
                while self.heads[i].as_ref().is_some_and(|(other, _)| other == id) {
                    self.refill(i)?;
                }
            }
        }
        Ok(taken)
    }
}

impl<I, E> Iterator for Merge<I>
where
    I: Iterator<Item = Result<(RecordId, u64), E>>,
{
    type Item = Result<(RecordId, u64), E>;

    fn next(&mut self) -> Option<Self::Item> {
        if matches!(self.state, State::Done) {
            return None;
        }
        let item = self.step().transpose();
        if !matches!(item, Some(Ok(_))) {
            self.state = State::Done;
        }
        item
    }
}
