//! The sequential half of a round: a leaf is a source or a destination, never both. What loses waits.

use std::collections::BTreeMap;

use super::plan::{Move, Plan};
use super::state::State;
use crate::types::Change;

/// Rows leave a leaf that is not written anew for another reason when they are at least this part of it.
const LEAVE_PART: usize = 16;

/// Which side a leaf is on in this round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Source,
    Destination,
}

/// The new leaves of a split: id and rows of each.
pub(crate) type NewLeaves = Vec<(u64, Vec<u64>)>;

/// What a round does. Rows that are not named stay where they are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Round {
    /// Split leaves (ascending): the ids of their parts and the rows that stay in each.
    pub splits: Vec<(u64, NewLeaves)>,
    /// Dissolved leaves, ascending.
    pub merges: Vec<u64>,
    /// Leaves of equal rows, ascending.
    pub whole: Vec<u64>,
    /// Moves out of existing leaves (not split, not dissolved).
    pub leaves: BTreeMap<u64, Vec<u64>>,
    /// Rows that enter a leaf, old or new, by leaf.
    pub enters: BTreeMap<u64, Vec<u64>>,
    /// Losers.
    pub waiting: Vec<Move>,
}

impl Round {
    /// Whether no row moves.
    pub fn is_still(&self) -> bool {
        self.splits.is_empty() && self.merges.is_empty() && self.enters.is_empty()
    }
}

/// Resolves the conflicts of a plan and gives out the ids of new leaves.
pub(crate) fn resolve(state: &mut State<'_>, plan: Plan) -> Round {
    let mut round = Round::default();
    let mut sides: BTreeMap<u64, Side> = BTreeMap::new();
    // Splits never conflict among themselves; new ids in sorted order.
    let mut part_ids: Vec<Vec<u64>> = Vec::with_capacity(plan.splits.len());
    for split in &plan.splits {
        sides.insert(split.leaf, Side::Source);
        if split.parts.len() < 2 {
            round.whole.push(split.leaf);
            part_ids.push(Vec::new());
        } else {
            part_ids.push(split.parts.iter().map(|_| state.next_id()).collect());
        }
    }
    resolve_merges(state, &plan, &mut sides, &mut round);
    // Between a split and a neighbour rows go one way: the way that more of them want.
    let mut wishes: BTreeMap<u64, (usize, usize)> = BTreeMap::new();
    plan.joining.iter().for_each(|j| wishes.entry(j.1).or_default().0 += 1);
    plan.splits.iter().flat_map(|s| &s.leaving).for_each(|l| wishes.entry(l.2).or_default().1 += 1);
    for (leaf, (joining, leaving)) in wishes {
        sides.entry(leaf).or_insert(if joining >= leaving { Side::Source } else { Side::Destination });
    }
    let mut stays: Vec<Vec<Vec<u64>>> =
        plan.splits.iter().map(|s| s.parts.iter().map(|p| p.rows.clone()).collect()).collect();
    for (i, split) in plan.splits.iter().enumerate().filter(|(_, s)| s.parts.len() > 1) {
        for &(row, part, to) in &split.leaving {
            if sides.get(&to) == Some(&Side::Destination) {
                let list = &mut stays[i][part as usize];
                if let Ok(at) = list.binary_search(&row) {
                    list.remove(at);
                    round.enters.entry(to).or_default().push(row);
                }
            } else {
                round.waiting.push(Move { from: part_ids[i][part as usize], row, to });
            }
        }
    }
    for &(row, from, split, part) in &plan.joining {
        let to = part_ids[split as usize][part as usize];
        if sides.get(&from) == Some(&Side::Source) && !round.merges.contains_leaf(from) {
            round.leaves.entry(from).or_default().push(row);
            round.enters.entry(to).or_default().push(row);
        } else {
            round.waiting.push(Move { from, row, to });
        }
    }
    resolve_moves(&plan.moves, &mut sides, &mut round);
    for ((split, ids), stays) in plan.splits.iter().zip(part_ids).zip(stays) {
        if !ids.is_empty() {
            round.splits.push((split.leaf, ids.into_iter().zip(stays).collect()));
        }
    }
    stay_put(state, &mut round);
    round.leaves.values_mut().chain(round.enters.values_mut()).for_each(|rows| rows.sort_unstable());
    round
}

/// A leaf that only a few of its rows want to leave keeps them. It would have to be coded and written anew as a whole for
/// rows that lie near its border, where a search that needs them looks as well.
fn stay_put(state: &State<'_>, round: &mut Round) {
    let leaves = &state.tree.leaves;
    let stays = |leaf: &u64, rows: &Vec<u64>| {
        let written = leaves.get(leaf).is_none_or(|leaf| leaf.change == Change::Rewritten);
        !written && rows.len() * LEAVE_PART < state.size(*leaf)
    };
    let mut kept: Vec<u64> =
        round.leaves.extract_if(.., |leaf, rows| stays(leaf, rows)).flat_map(|(_, rows)| rows).collect();
    kept.sort_unstable();
    for rows in round.enters.values_mut() {
        rows.retain(|row| kept.binary_search(row).is_err());
    }
    round.enters.retain(|_, rows| !rows.is_empty());
}

/// Membership in an ascending list.
trait ContainsLeaf {
    fn contains_leaf(&self, leaf: u64) -> bool;
}

impl ContainsLeaf for Vec<u64> {
    fn contains_leaf(&self, leaf: u64) -> bool {
        self.binary_search(&leaf).is_ok()
    }
}

/// A small leaf dissolves into the neighbours where the sum stays at most 0.75 S, each row into the nearest of them.
fn resolve_merges(state: &State<'_>, plan: &Plan, sides: &mut BTreeMap<u64, Side>, round: &mut Round) {
    let room = state.tree.params.split_size as usize * 3 / 4;
    let mut planned: BTreeMap<u64, usize> = BTreeMap::new();
    for merge in &plan.merges {
        if sides.contains_key(&merge.leaf) {
            continue;
        }
        let n = merge.neighbours.len();
        let open: Vec<usize> = (0..n)
            .filter(|&j| {
                let id = merge.neighbours[j];
                let size = planned.get(&id).copied().unwrap_or_else(|| state.size(id));
                sides.get(&id) != Some(&Side::Source) && size + merge.rows.len() <= room
            })
            .collect();
        if open.is_empty() {
            continue;
        }
        sides.insert(merge.leaf, Side::Source);
        round.merges.push(merge.leaf);
        for (row, distances) in merge.rows.iter().zip(merge.distances.chunks_exact(n)) {
            let mut best = open[0];
            for &j in &open[1..] {
                if distances[j] < distances[best] {
                    best = j;
                }
            }
            let to = merge.neighbours[best];
            sides.insert(to, Side::Destination);
            *planned.entry(to).or_insert_with(|| state.size(to)) += 1;
            round.enters.entry(to).or_default().push(*row);
        }
    }
}

fn resolve_moves(moves: &[Move], sides: &mut BTreeMap<u64, Side>, round: &mut Round) {
    for m in moves {
        // A row that another wish of this round moves already does not move twice.
        if round.leaves.get(&m.from).is_some_and(|rows| rows.contains(&m.row))
            || round.merges.contains_leaf(m.from)
        {
            continue;
        }
        let from = *sides.get(&m.from).unwrap_or(&Side::Source);
        let to = *sides.get(&m.to).unwrap_or(&Side::Destination);
        if from == Side::Source && to == Side::Destination {
            sides.insert(m.from, Side::Source);
            sides.insert(m.to, Side::Destination);
            round.leaves.entry(m.from).or_default().push(m.row);
            round.enters.entry(m.to).or_default().push(m.row);
        } else {
            round.waiting.push(*m);
        }
    }
}
