//! A log with its model, and checkpoints of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use pando_format::{
    Body, BodyName, BodyPlace, CollectionConfig, CollectionRecord, CollectionUuid, Entry, Head, IdKind,
    IdView, Manifest, Nonce, Operation, RecordId, RowSet, Rows, RowsBuilder, Stored, Value,
};
use pando_kernels::{Kernels, Metric};
use pando_store::{Key, Store};

use crate::checkpoint::{CheckpointOutcome, Surroundings, run_checkpoint};
use crate::rootio::{RootIo, SegmentTable};
use crate::verify::verify;

/// Small deterministic numbers for tests.
#[derive(Clone, Debug)]
pub struct Numbers(u64);

impl Numbers {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn float(&mut self) -> f32 {
        (self.next() & 0xFFFF) as f32 / 65_536.0 - 0.5
    }

    /// A vector near one of `clusters` centres.
    pub fn vector(&mut self, dim: usize, clusters: u64) -> Vec<f32> {
        let mut centre = Numbers::new(1_000 + self.below(clusters));
        (0..dim).map(|_| 2.0 * centre.float() + 0.5 * self.float() + 0.01).collect()
    }
}

/// What a test writes.
pub enum Op {
    Upsert(Vec<(RecordId, Vec<f32>)>),
    Delete(Vec<RecordId>),
    DeleteRows(RowSet),
    Closed,
}

pub fn config(dim: u32, metric: Metric) -> CollectionConfig {
    CollectionConfig {
        dim,
        metric,
        copies: 2,
        refine: true,
        seed: 7,
        small_limit: 200,
        log_retention_seconds: 3600,
    }
}

/// A collection: its log, and what it should hold.
pub struct Log {
    pub store: Store,
    pub record: Arc<CollectionRecord>,
    pub head: Option<Head>,
    pub sequence: u64,
    pub next_row: u64,
    rows: u64,
    bytes: u64,
    /// Live records: row and vector.
    pub model: BTreeMap<RecordId, (u64, Vec<f32>)>,
}

impl Log {
    pub fn new(store: Store, config: CollectionConfig) -> Self {
        let record = CollectionRecord {
            uuid: CollectionUuid(uuid::Uuid::from_u128(0x1234)),
            name: "test".into(),
            config,
            lineage: Vec::new(),
            forked: None,
            shards: 1,
        };
        let record = Arc::new(record);
        Self {
            store,
            record,
            head: None,
            sequence: 0,
            next_row: 0,
            rows: 0,
            bytes: 0,
            model: BTreeMap::new(),
        }
    }

    pub fn io(&self) -> RootIo {
        RootIo::new(self.store.clone(), self.record.clone())
    }

    fn rows_of(&self, records: &[(RecordId, Vec<f32>)]) -> Rows {
        let mut builder = RowsBuilder::new(self.record.config.dim as usize);
        for (i, (id, vector)) in records.iter().enumerate() {
            let number = Value::Int64(i as i64);
            let text = Value::String(format!("record {id}"));
            let attributes =
                if i % 3 == 0 { vec![("n", &number)] } else { vec![("n", &number), ("text", &text)] };
            builder.push(id.clone(), vector, attributes).unwrap();
        }
        builder.finish().unwrap()
    }

    /// Appends an entry; the model follows.
    pub async fn write(&mut self, ops: Vec<Op>) {
        self.sequence += 1;
        let nonce = Nonce(u128::from(self.sequence).to_le_bytes());
        let (mut operations, mut bodies, mut next) = (Vec::new(), Vec::new(), self.next_row);
        for op in ops {
            match op {
                Op::Upsert(records) => {
                    let rows = self.rows_of(&records);
                    let aim = BodyName { aim: self.sequence, nonce: Nonce([bodies.len() as u8; 16]) };
                    let (body, bytes) = Body::new(&rows, aim).unwrap();
                    if let BodyPlace::External(name) = body.place {
                        let key = Key::Batch { uuid: self.record.uuid.0, aim: name.aim, nonce: name.nonce.0 };
                        self.store.put_content_addressed(&key, bytes).await.unwrap();
                    }
                    operations.push(Operation::Upsert { body: bodies.len() as u32, from: 0, to: body.rows });
                    bodies.push(body);
                    for (id, vector) in records {
                        self.model.insert(id, (next, vector));
                        next += 1;
                    }
                }
                Op::Delete(ids) => {
                    for id in &ids {
                        self.model.remove(id);
                    }
                    operations.push(Operation::DeleteIds(ids));
                }
                Op::DeleteRows(rows) => {
                    self.model.retain(|_, (row, _)| !rows.contains(*row));
                    operations.push(Operation::DeleteRows(rows));
                }
                Op::Closed => operations.push(Operation::Closed(pando_format::Closing { successor: None })),
            }
        }
        let rows = next - self.next_row;
        let bytes = bodies.iter().map(|b| b.len).sum::<u64>() + Entry::operation_bytes(&operations);
        self.rows += rows;
        self.bytes += bytes;
        let entry = Entry {
            uuid: self.record.uuid,
            sequence: self.sequence,
            nonce,
            first_row: self.next_row,
            rows,
            bytes,
            cumulative_rows: self.rows,
            cumulative_bytes: self.bytes,
            operations,
            keys: Vec::new(),
            bodies,
        };
        self.next_row = next;
        self.put(&entry).await;
    }

    pub async fn put(&self, entry: &Entry) {
        let key = Key::Log { uuid: self.record.uuid.0, sequence: entry.sequence };
        self.store.create_if_absent(&key, Bytes::from(entry.encode().unwrap())).await.unwrap();
    }

    /// Random upserts, replacements and deletes over `ids` ids, in several entries.
    pub async fn churn(&mut self, numbers: &mut Numbers, entries: u64, per_entry: u64, ids: u64) {
        let dim = self.record.config.dim as usize;
        for _ in 0..entries {
            let mut ops = Vec::new();
            let id = |numbers: &mut Numbers| match numbers.below(ids) {
                n if n % 3 == 0 => RecordId::Str(format!("key-{n}")),
                n => RecordId::U64(n),
            };
            let n = 1 + numbers.below(per_entry);
            let upserts: Vec<_> = (0..n).map(|_| (id(numbers), numbers.vector(dim, 12))).collect();
            ops.push(Op::Upsert(upserts));
            if numbers.below(3) == 0 {
                let n = numbers.below(per_entry / 2 + 1);
                ops.push(Op::Delete((0..n).map(|_| id(numbers)).collect()));
            }
            if numbers.below(4) == 0 && self.next_row > 0 {
                let first = numbers.below(self.next_row);
                ops.push(Op::DeleteRows((first..(first + 10).min(self.next_row)).collect()));
            }
            self.write(ops).await;
        }
    }

    /// Runs a checkpoint that must publish.
    pub async fn checkpoint(&mut self, around: &Surroundings) -> Arc<Manifest> {
        match run_checkpoint(around, self.head.as_ref(), self.sequence).await.unwrap() {
            CheckpointOutcome::Published(done) => {
                self.head = Some(done.head);
                done.manifest
            }
            other => panic!("{other:?}"),
        }
    }

    /// The newest root holds exactly the model, and verifies.
    pub async fn check(&self, around: &Surroundings) {
        let root = self.head.as_ref().unwrap().root.unwrap();
        let report = verify(around, root.depth, root.root).await.unwrap();
        assert!(report.ok, "{:#?}", report.problems);
        assert_eq!(report.records, self.model.len() as u64);
        let io = self.io();
        let (manifest, _) = io.manifest(root.depth, &root.root).await.unwrap();
        assert_eq!(manifest.next_row, self.next_row);
        let dead = io.deaths(&manifest.deaths).await.unwrap();
        let table = SegmentTable::open(&io, &manifest.segments).await.unwrap();
        for kind in [IdKind::U64, IdKind::Str] {
            let ids: Vec<&RecordId> = self.model.keys().filter(|id| id.kind() == kind).collect();
            let views: Vec<IdView<'_>> = ids.iter().map(|id| IdView::from(*id)).collect();
            let rows = io.lookup_sorted(&manifest.id_runs, kind, &views).await.unwrap();
            for (id, row) in ids.iter().zip(rows) {
                let (expected, _) = &self.model[*id];
                assert_eq!(row, Some(*expected), "{id}");
                assert!(!dead.contains(*expected));
                assert!(table.locate(*expected).is_some());
            }
        }
        for segment in table.segments() {
            for i in 0..segment.side().batches.len() {
                let batch = segment.batch(i).await.unwrap();
                for (place, row) in batch.numbers.iter().enumerate() {
                    let live = self.model.get(&batch.rows.ids()[place]).filter(|(r, _)| r == row);
                    assert_eq!(live.is_some(), !dead.contains(*row));
                    if let Some((_, vector)) = live {
                        assert_eq!(batch.rows.vector(place), &vector[..]);
                    }
                }
            }
        }
    }
}

/// Surroundings with so many threads and bytes.
pub fn around(log: &Log, threads: usize, memory: u64) -> Surroundings {
    Surroundings {
        store: log.store.clone(),
        record: log.record.clone(),
        kernels: Kernels::detect(),
        pool: Arc::new(rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap()).into(),
        memory,
        progress: Arc::new(|_| {}),
    }
}
