//! The tail at every position: what is seen, hidden and counted.

use std::sync::Arc;
use std::time::Duration;

use pando_format::{
    Body, BodyName, CollectionUuid, Entry, Nonce, Operation, RecordId, Rows, RowsBuilder, Value,
};
use pando_kernels::{Kernels, Metric};
use pando_tree::search::Frame;

use super::*;

const DIM: usize = 3;
/// First row number of the tail.
const BASE: u64 = 1000;

fn rows(ids: &[u64], x: f32) -> Arc<Rows> {
    let mut builder = RowsBuilder::new(DIM);
    for id in ids {
        builder
            .push(RecordId::U64(*id), &[x, *id as f32, 1.0], std::iter::empty::<(&str, &Value)>())
            .unwrap();
    }
    Arc::new(builder.finish().unwrap())
}

/// An entry with one body and then deletes, in this order; `first_row` counts from BASE.
fn entry(
    sequence: u64,
    first_row: u64,
    body: Option<Arc<Rows>>,
    deletes: &[u64],
    more: Vec<Operation>,
) -> LoadedEntry {
    let mut operations = Vec::new();
    let mut bodies = Vec::new();
    if let Some(rows) = &body {
        let (reference, _) = Body::new(rows, BodyName { aim: sequence, nonce: Nonce([0; 16]) }).unwrap();
        operations.push(Operation::Upsert { body: 0, from: 0, to: reference.rows });
        bodies.push(reference);
    }
    if !deletes.is_empty() {
        operations.push(Operation::DeleteIds(deletes.iter().map(|id| RecordId::U64(*id)).collect()));
    }
    operations.extend(more);
    let count = body.as_ref().map_or(0, |rows| rows.len() as u64);
    let entry = Entry {
        uuid: CollectionUuid(uuid::Uuid::nil()),
        sequence,
        nonce: Nonce([sequence as u8; 16]),
        first_row: BASE + first_row,
        rows: count,
        bytes: 1,
        cumulative_rows: BASE + first_row + count,
        cumulative_bytes: sequence,
        operations,
        keys: Vec::new(),
        bodies,
    };
    LoadedEntry { entry: Arc::new(entry), bodies: body.into_iter().collect() }
}

fn tail(budget: u64) -> Tail {
    let frame = Arc::new(Frame::new(Kernels::detect(), Metric::L2, 1, vec![0.0; DIM]));
    // Rows below BASE are the root's.
    let base = LogFacts { next_row: BASE, ..LogFacts::default() };
    Tail::new(frame, base, Default::default(), MemoryBudget::new(budget))
}

fn apply(tail: &Tail, loaded: &LoadedEntry, root_rows: &[(u64, u64)]) -> bool {
    let prepared = Prepared {
        coded: loaded.bodies.iter().map(|rows| CodedRows::encode(tail.frame(), rows.vectors())).collect(),
        root_rows: root_rows.iter().map(|(id, row)| (RecordId::U64(*id), *row)).collect(),
        live_root_rows: Vec::new(),
    };
    tail.apply(loaded, &prepared, Duration::ZERO)
}

fn row_of(tail: &Tail, id: u64, position: u64) -> Option<u64> {
    let reader = tail.read();
    match reader.lookup(&RecordId::U64(id), position) {
        Lookup::Row(index) => Some(reader.row_number(index as usize) - BASE),
        Lookup::Deleted | Lookup::Unknown => None,
    }
}

#[test]
fn every_position_keeps_what_it_saw() {
    let tail = tail(1 << 20);
    assert!(apply(&tail, &entry(1, 0, Some(rows(&[1, 2, 2], 0.0)), &[], vec![]), &[(1, 900)]));
    assert!(apply(&tail, &entry(2, 3, Some(rows(&[1], 1.0)), &[2, 7], vec![]), &[(7, 901)]));
    assert!(apply(&tail, &entry(3, 4, Some(rows(&[7], 2.0)), &[], vec![]), &[(7, 901)]));
    // Position 1: the later of two rows of one entry counts; root row 900 is hidden, 901 is not yet.
    assert_eq!((row_of(&tail, 1, 1), row_of(&tail, 2, 1), row_of(&tail, 7, 1)), (Some(0), Some(2), None));
    assert_eq!((row_of(&tail, 1, 2), row_of(&tail, 2, 2), row_of(&tail, 7, 2)), (Some(3), None, None));
    assert_eq!((row_of(&tail, 1, 3), row_of(&tail, 7, 3)), (Some(3), Some(4)));
    let reader = tail.read();
    assert_eq!([900, 901].map(|row| reader.hides(row, 1)), [true, false]);
    assert_eq!([900, 901].map(|row| reader.hides(row, 2)), [true, true]);
    assert_eq!(reader.lookup(&RecordId::U64(7), 1), Lookup::Unknown, "the root still answers for it");
    assert_eq!(reader.lookup(&RecordId::U64(7), 2), Lookup::Deleted);
    let visible =
        |position| reader.visible_rows(position).map(|i| reader.row_number(i) - BASE).collect::<Vec<_>>();
    assert_eq!((visible(0), visible(1), visible(2), visible(3)), (vec![], vec![0, 2], vec![3], vec![3, 4]));
    // Root had 1 and 7 live: 1 replaced, 2 added; then 2 and 7 deleted; then 7 added again.
    assert_eq!([0, 1, 2, 3].map(|position| reader.live_change(position)), [0, 1, -1, 0]);
    assert_eq!(reader.rows_up_to(2), 4);
}

#[test]
fn an_entry_that_does_not_fit_is_skipped_and_nothing_counts_after_a_closing() {
    let tail = tail(1 << 20);
    assert!(!apply(&tail, &entry(2, 0, Some(rows(&[1], 0.0)), &[], vec![]), &[]), "not the next entry");
    assert!(apply(&tail, &entry(1, 5, Some(rows(&[1], 0.0)), &[], vec![]), &[]));
    assert_eq!((row_of(&tail, 1, 1), tail.facts().next_row, tail.facts().sequence), (None, BASE, 1));
    let closing = vec![Operation::Closed(pando_format::Closing { successor: None })];
    assert!(apply(&tail, &entry(2, 0, Some(rows(&[1], 0.0)), &[], closing), &[]));
    assert!(apply(&tail, &entry(3, 1, Some(rows(&[9], 0.0)), &[], vec![]), &[]));
    assert!(tail.facts().closed);
    assert_eq!((row_of(&tail, 1, 3), row_of(&tail, 9, 3)), (Some(0), None));
}

#[test]
fn rows_killed_by_number_die_once() {
    let tail = tail(1 << 20);
    apply(&tail, &entry(1, 0, Some(rows(&[1, 2], 0.0)), &[], vec![]), &[]);
    let kill = Operation::DeleteRows([BASE, 77].into_iter().collect());
    let loaded = entry(2, 2, None, &[], vec![kill.clone(), kill]);
    let prepared = Prepared { live_root_rows: vec![77], ..Prepared::default() };
    assert!(tail.apply(&loaded, &prepared, Duration::ZERO));
    assert_eq!((row_of(&tail, 1, 1), row_of(&tail, 1, 2), row_of(&tail, 2, 2)), (Some(0), None, Some(1)));
    let reader = tail.read();
    assert!(reader.hides(77, 2) && !reader.hides(77, 1));
    assert_eq!(reader.live_change(2), 2 - 2);
}

#[test]
fn beyond_the_budget_the_oldest_bodies_are_spilled() {
    let one = memory_of(&rows(&[1, 2, 3], 0.0));
    let tail = tail(2 * one);
    for sequence in 1..=4 {
        apply(&tail, &entry(sequence, (sequence - 1) * 3, Some(rows(&[1, 2, 3], 0.0)), &[], vec![]), &[]);
    }
    let reader = tail.read();
    let spilled: Vec<bool> =
        (0..4).map(|body| matches!(reader.body(body), BodyRows::Spilled { .. })).collect();
    assert_eq!(spilled, [true, true, false, false]);
    assert!(reader.vector(0).is_none() && reader.vector(11).is_some());
    assert_eq!(reader.entries_after(2).len(), 2);
}
