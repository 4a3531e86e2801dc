//! The fold is total: what contradicts is skipped and reported.

use bytes::Bytes;
use pando_format::{
    ALGORITHM_VERSION, Entry, Head, HeadRoot, Nonce, Operation, Plan, PlanContents, RecordId, RootId, Stored,
};
use pando_kernels::Metric;
use pando_store::{Key, Store};

use super::MIB;
use super::harness::{Log, Numbers, Op, around, config};
use crate::checkpoint::{CheckpointOutcome, run_checkpoint};
use crate::error::ErrorKind;

fn upsert(numbers: &mut Numbers, ids: std::ops::Range<u64>) -> Op {
    Op::Upsert(ids.map(|id| (RecordId::U64(id), numbers.vector(8, 4))).collect())
}

async fn published(log: &mut Log) -> Vec<String> {
    let around = around(log, 2, 64 * MIB);
    match run_checkpoint(&around, log.head.as_ref(), log.sequence).await.unwrap() {
        CheckpointOutcome::Published(done) => {
            log.head = Some(done.head);
            log.check(&around).await;
            done.skipped
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_at_the_wrong_row_is_skipped() {
    let mut log = Log::new(Store::in_memory(), config(8, Metric::L2));
    let mut numbers = Numbers::new(5);
    log.write(vec![upsert(&mut numbers, 0..20)]).await;
    log.sequence += 1;
    let operations = vec![Operation::DeleteIds(vec![RecordId::U64(3)])];
    let bytes = Entry::operation_bytes(&operations);
    let entry = Entry {
        uuid: log.record.uuid,
        sequence: log.sequence,
        nonce: Nonce([9; 16]),
        first_row: 7,
        rows: 0,
        bytes,
        cumulative_rows: 20,
        cumulative_bytes: 1_000_000,
        operations,
        keys: Vec::new(),
        bodies: Vec::new(),
    };
    log.put(&entry).await;
    log.write(vec![upsert(&mut numbers, 10..30)]).await;
    let skipped = published(&mut log).await;
    assert_eq!(skipped, ["log entry 2 begins at row 7, not at 20"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_counts_after_a_closing() {
    let mut log = Log::new(Store::in_memory(), config(8, Metric::L2));
    let mut numbers = Numbers::new(6);
    log.write(vec![upsert(&mut numbers, 0..20), Op::Closed]).await;
    let (model, next_row) = (log.model.clone(), log.next_row);
    log.write(vec![upsert(&mut numbers, 10..30)]).await;
    (log.model, log.next_row) = (model, next_row);
    let skipped = published(&mut log).await;
    assert_eq!(skipped, ["log entry 2 follows the closing of the collection"]);
    let head = log.head.clone().unwrap();
    assert!(head.closed.is_some());
    let around = around(&log, 1, MIB);
    let after = run_checkpoint(&around, Some(&head), log.sequence).await.unwrap();
    assert!(matches!(after, CheckpointOutcome::NothingToDo));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_entry_stops_the_checkpoint_until_a_plan_steps_over_it() {
    let mut log = Log::new(Store::in_memory(), config(8, Metric::L2));
    let mut numbers = Numbers::new(7);
    log.write(vec![upsert(&mut numbers, 0..20)]).await;
    let model = log.model.clone();
    log.write(vec![upsert(&mut numbers, 15..25)]).await;
    log.model = model;
    log.store.delete(&Key::Log { uuid: log.record.uuid.0, sequence: 2 }).await.unwrap();
    log.write(vec![upsert(&mut numbers, 18..40)]).await;
    let around = around(&log, 2, 64 * MIB);
    let plan = |number, stepped_over| Plan {
        depth: 1,
        parent: None,
        number,
        contents: PlanContents { end_sequence: 3, algorithm: ALGORITHM_VERSION, stepped_over },
    };
    for (number, stepped_over) in [(0, vec![]), (1, vec![2])] {
        let key = Key::Plan { uuid: log.record.uuid.0, depth: 1, parent: [0; 32], n: number };
        let bytes = Bytes::from(plan(number, stepped_over).encode().unwrap());
        log.store.create_if_absent(&key, bytes).await.unwrap();
        if number == 0 {
            let error = run_checkpoint(&around, None, 3).await.unwrap_err();
            assert_eq!((error.kind, error.message.as_str()), (ErrorKind::DataLoss, "log entry 2 is missing"));
        }
    }
    assert!(published(&mut log).await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_loses_the_race_learns_the_winner() {
    let mut log = Log::new(Store::in_memory(), config(8, Metric::L2));
    let mut numbers = Numbers::new(8);
    log.write(vec![upsert(&mut numbers, 0..20)]).await;
    let winner = Head {
        uuid: log.record.uuid,
        generation: 1,
        root: Some(HeadRoot { root: RootId([7; 32]), depth: 1, len: 1, parent: None }),
        sequence: 1,
        log_floor: 0,
        next_row: 20,
        cumulative_rows: 20,
        cumulative_bytes: 1,
        closed: None,
    };
    let key = Key::Head { uuid: log.record.uuid.0, generation: 1 };
    log.store.create_if_absent(&key, Bytes::from(winner.encode().unwrap())).await.unwrap();
    let around = around(&log, 2, 64 * MIB);
    match run_checkpoint(&around, None, 1).await.unwrap() {
        CheckpointOutcome::LostRace(head) => assert_eq!(*head, winner),
        other => panic!("{other:?}"),
    }
}
