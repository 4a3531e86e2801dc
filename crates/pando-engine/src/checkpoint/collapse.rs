//! Collapses the operations of a plan to the last one of each id.
//!
//! Memory: 16 bytes an operation on an integer id, 24 and the id's bytes on a string id; nothing of vectors.

use pando_format::{RecordId, RowSet};
use rayon::prelude::*;

/// Row of an id whose last operation is a deletion. No row has this number: row counts of an entry cannot reach it.
const DELETED: u64 = u64::MAX;

#[derive(Clone, Copy, Debug)]
struct StrOp {
    start: u64,
    len: u32,
    row: u64,
}

/// Gathers operations in log order.
#[derive(Debug, Default)]
pub struct Collapse {
    ints: Vec<(u64, u64)>,
    strs: Vec<StrOp>,
    text: Vec<u8>,
    killed: RowSet,
}

/// The last operation of every id that a plan touches, ids ascending (integers first).
#[derive(Debug, Default)]
pub struct Collapsed {
    ints: Vec<(u64, u64)>,
    strs: Vec<StrOp>,
    text: Vec<u8>,
    /// Rows killed by their number, of this plan or older.
    pub killed: RowSet,
    /// Rows of this plan that live at its end.
    pub survivors: RowSet,
}

impl Collapse {
    /// `id` is written as `row`.
    pub fn upsert(&mut self, id: &RecordId, row: u64) {
        match id {
            RecordId::U64(id) => self.ints.push((*id, row)),
            RecordId::Str(id) => {
                self.strs.push(StrOp { start: self.text.len() as u64, len: id.len() as u32, row });
                self.text.extend_from_slice(id.as_bytes());
            }
        }
    }

    /// `id` is deleted.
    pub fn delete(&mut self, id: &RecordId) {
        self.upsert(id, DELETED);
    }

    /// `rows` die, whatever their ids. Rows are immutable, so it does not matter when.
    pub fn kill(&mut self, rows: &RowSet) {
        self.killed |= rows;
    }

    /// Keeps the last operation of each id. Rows from `end` on do not exist and cannot be killed.
    pub fn finish(self, end: u64) -> Collapsed {
        let Self { mut ints, mut strs, text, mut killed } = self;
        killed.remove_range(end..);
        // Stable sorts: operations on one id stay in log order.
        ints.par_sort_by_key(|(id, _)| *id);
        keep_last(&mut ints, |a, b| a.0 == b.0);
        let id = |op: &StrOp| &text[op.start as usize..op.start as usize + op.len as usize];
        strs.par_sort_by(|a, b| id(a).cmp(id(b)));
        keep_last(&mut strs, |a, b| id(a) == id(b));
        let rows = ints.iter().map(|(_, row)| *row).chain(strs.iter().map(|op| op.row));
        let mut rows: Vec<u64> = rows.filter(|row| *row != DELETED && !killed.contains(*row)).collect();
        rows.par_sort_unstable();
        let survivors = RowSet::from_sorted_iter(rows).expect("sorted, and a row belongs to one operation");
        Collapsed { ints, strs, text, killed, survivors }
    }
}

/// Of neighbours that are the same, keeps the last.
fn keep_last<T: Copy>(list: &mut Vec<T>, same: impl Fn(&T, &T) -> bool) {
    let mut kept = 0;
    for i in 0..list.len() {
        if i + 1 == list.len() || !same(&list[i], &list[i + 1]) {
            list[kept] = list[i];
            kept += 1;
        }
    }
    list.truncate(kept);
}

impl Collapsed {
    /// Number of ids touched.
    pub fn len(&self) -> usize {
        self.ints.len() + self.strs.len()
    }

    /// Integer ids touched, ascending.
    pub fn ints(&self) -> impl ExactSizeIterator<Item = u64> + '_ {
        self.ints.iter().map(|(id, _)| *id)
    }

    /// String ids touched, ascending by bytes.
    pub fn strs(&self) -> impl ExactSizeIterator<Item = &str> + '_ {
        self.strs.iter().map(|op| self.text_of(op))
    }

    /// Surviving integer ids with their rows, ascending.
    pub fn live_ints(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ints.iter().copied().filter(|(_, row)| self.lives(*row))
    }

    /// Surviving string ids with their rows, ascending.
    pub fn live_strs(&self) -> impl Iterator<Item = (&str, u64)> + '_ {
        self.strs.iter().filter(|op| self.lives(op.row)).map(|op| (self.text_of(op), op.row))
    }

    fn lives(&self, row: u64) -> bool {
        row != DELETED && !self.killed.contains(row)
    }

    fn text_of(&self, op: &StrOp) -> &str {
        let bytes = &self.text[op.start as usize..op.start as usize + op.len as usize];
        std::str::from_utf8(bytes).expect("copied from a string")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn collapses_like_a_map(ops in prop::collection::vec((0u8..3, 0u8..12, any::<bool>()), 0..200)) {
            let mut collapse = Collapse::default();
            let mut model: BTreeMap<RecordId, Option<u64>> = BTreeMap::new();
            let mut killed = RowSet::new();
            let mut next = 0u64;
            for (op, key, text) in ops {
                let id = if text { RecordId::Str(format!("k{key}")) } else { RecordId::U64(u64::from(key)) };
                match op {
                    0 => {
                        collapse.upsert(&id, next);
                        model.insert(id, Some(next));
                        next += 1;
                    }
                    1 => {
                        collapse.delete(&id);
                        model.insert(id, None);
                    }
                    _ => {
                        let set: RowSet = [u64::from(key) * 3, next + 5].into_iter().collect();
                        collapse.kill(&set);
                        killed |= set;
                    }
                }
            }
            let done = collapse.finish(next);
            let expected: Vec<(RecordId, u64)> = model
                .iter()
                .filter_map(|(id, row)| row.filter(|r| !killed.contains(*r)).map(|r| (id.clone(), r)))
                .collect();
            let mut got: Vec<(RecordId, u64)> = done.live_ints().map(|(id, r)| (RecordId::U64(id), r)).collect();
            got.extend(done.live_strs().map(|(id, r)| (RecordId::Str(id.to_owned()), r)));
            prop_assert_eq!(&got, &expected);
            prop_assert_eq!(done.len(), model.len());
            let rows: RowSet = expected.iter().map(|(_, r)| *r).collect();
            prop_assert_eq!(&done.survivors, &rows);
            prop_assert!(done.killed.max().is_none_or(|row| row < next));
        }
    }
}
