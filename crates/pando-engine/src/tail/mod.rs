//! The tail: log entries past a root, readable at any position.
//!
//! Rows, codes and hidden root rows carry the sequence at which they appeared or died, so one structure under one
//! lock answers reads at every position from the root's sequence to the last entry applied (law 6). Vectors and
//! attributes beyond the tails' budget are dropped and read back from the log (law 9).

mod codes;
mod spill;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::Array;
use pando_format::{AttributeSchema, Entry, KeyRecord, Operation, RecordId, Rows};
use pando_tree::search::{Frame, LeafPart};
use parking_lot::{RwLock, RwLockReadGuard};

use crate::environment::{MemoryBudget, Reservation};
pub use codes::{CodedRows, TailCodes};
pub use spill::body_rows;

/// A dead_at of rows that live.
const ALIVE: u64 = u64::MAX;
/// A version that is a deletion.
const DELETED: u32 = u32::MAX;
/// End of a version chain.
const NONE: u32 = u32::MAX;

/// A log entry with its decoded bodies.
#[derive(Clone, Debug)]
pub struct LoadedEntry {
    /// Header and operations.
    pub entry: Arc<Entry>,
    /// One per body.
    pub bodies: Vec<Arc<Rows>>,
}

/// What has to be worked out before an entry can be applied: codes (CPU) and the root rows of its ids (reads).
#[derive(Debug, Default)]
pub struct Prepared {
    /// One per body.
    pub coded: Vec<CodedRows>,
    /// Live root row of every id that the entry writes or deletes and the root has.
    pub root_rows: HashMap<RecordId, u64>,
    /// Root rows that the entry kills by number and that live in the root, ascending.
    pub live_root_rows: Vec<u64>,
}

/// Where the log stands after an entry: what the next one builds on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogFacts {
    /// Last entry applied.
    pub sequence: u64,
    /// First row number of the next entry.
    pub next_row: u64,
    /// Rows of all entries so far.
    pub cumulative_rows: u64,
    /// Bytes of all entries so far.
    pub cumulative_bytes: u64,
    /// The log is closed.
    pub closed: bool,
}

#[derive(Clone, Copy, Debug)]
struct TailRow {
    sequence: u64,
    dead_at: u64,
    body: u32,
    place: u32,
}

#[derive(Clone, Copy, Debug)]
struct Version {
    sequence: u64,
    index: u32,
    previous: u32,
}

#[derive(Debug)]
struct TailBody {
    entry: Arc<Entry>,
    index: u32,
    rows: Option<Arc<Rows>>,
    reservation: Option<Reservation>,
}

/// Rows of a tail body, or where to read them again.
#[derive(Clone, Debug)]
pub enum BodyRows {
    /// In memory.
    Resident(Arc<Rows>),
    /// Spilled: body `index` of `entry`.
    Spilled {
        /// The entry.
        entry: Arc<Entry>,
        /// Which of its bodies.
        index: u32,
    },
}

/// What an id is at a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The tail says nothing: ask the root.
    Unknown,
    /// Deleted by the tail.
    Deleted,
    /// The tail row of this index.
    Row(u32),
}

/// An entry, and its bodies in the tail when it was applied.
#[derive(Debug)]
struct TailEntry {
    entry: Arc<Entry>,
    first_body: u32,
    bodies: u32,
    arrived: Duration,
}

#[derive(Debug)]
struct Inner {
    facts: LogFacts,
    codes: TailCodes,
    rows: Vec<TailRow>,
    versions: Vec<Version>,
    ids: HashMap<RecordId, u32>,
    hidden: HashMap<u64, u64>,
    live_now: i64,
    /// Live rows minus the root's live rows, after each entry.
    live: Vec<(u64, i64)>,
    bodies: Vec<TailBody>,
    entries: Vec<TailEntry>,
    resident: VecDeque<u32>,
    keys: HashMap<String, (u64, KeyRecord)>,
    attributes: AttributeSchema,
}

/// Log entries past one root (or past nothing).
pub struct Tail {
    frame: Arc<Frame>,
    base: LogFacts,
    budget: Arc<MemoryBudget>,
    inner: RwLock<Inner>,
}

impl std::fmt::Debug for Tail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tail({:?})", self.inner.read().facts)
    }
}

impl Tail {
    /// An empty tail after `base`, coded in `frame`; `attributes` are the types that the root knows.
    pub fn new(
        frame: Arc<Frame>,
        base: LogFacts,
        attributes: AttributeSchema,
        budget: Arc<MemoryBudget>,
    ) -> Self {
        let inner = Inner {
            facts: base.clone(),
            codes: TailCodes::new(frame.padded()),
            rows: Vec::new(),
            versions: Vec::new(),
            ids: HashMap::new(),
            hidden: HashMap::new(),
            live_now: 0,
            live: Vec::new(),
            bodies: Vec::new(),
            entries: Vec::new(),
            resident: VecDeque::new(),
            keys: HashMap::new(),
            attributes,
        };
        Self { frame, base, budget, inner: RwLock::new(inner) }
    }

    /// The frame of its codes.
    pub fn frame(&self) -> &Arc<Frame> {
        &self.frame
    }

    /// The position it starts after.
    pub fn base(&self) -> &LogFacts {
        &self.base
    }

    /// Where the log stands.
    pub fn facts(&self) -> LogFacts {
        self.inner.read().facts.clone()
    }

    /// Applies the next entry. Total: rows of an entry that does not start at the running next row are skipped, and
    /// nothing after a closing counts. `false`: not the next entry, nothing was done.
    pub fn apply(&self, loaded: &LoadedEntry, prepared: &Prepared, now: Duration) -> bool {
        let entry = &loaded.entry;
        let mut guard = self.inner.write();
        let inner = &mut *guard;
        if entry.sequence != inner.facts.sequence + 1 {
            return false;
        }
        inner.facts.sequence = entry.sequence;
        let fits = entry.first_row == inner.facts.next_row;
        let first_body = inner.bodies.len() as u32;
        if !inner.facts.closed && fits {
            inner.apply_operations(loaded, prepared, &self.budget);
            inner.facts.next_row = entry.next_row();
            inner.facts.cumulative_rows = entry.cumulative_rows;
            inner.facts.cumulative_bytes = entry.cumulative_bytes;
        }
        inner.live.push((entry.sequence, inner.live_now));
        let bodies = inner.bodies.len() as u32 - first_body;
        inner.entries.push(TailEntry { entry: entry.clone(), first_body, bodies, arrived: now });
        true
    }

    /// Takes the lock for reading.
    pub fn read(&self) -> TailReader<'_> {
        TailReader { inner: self.inner.read() }
    }
}

impl Inner {
    fn apply_operations(&mut self, loaded: &LoadedEntry, prepared: &Prepared, budget: &Arc<MemoryBudget>) {
        let entry = &loaded.entry;
        let sequence = entry.sequence;
        let first_index = self.rows.len() as u32;
        for (index, (rows, coded)) in loaded.bodies.iter().zip(&prepared.coded).enumerate() {
            let body = self.bodies.len() as u32;
            self.codes.append(entry.first_row_of(index), coded);
            self.rows.extend((0..rows.len() as u32).map(|place| TailRow {
                sequence,
                dead_at: ALIVE,
                body,
                place,
            }));
            // Writers refuse records that contradict a type; what does so all the same changes no type.
            for (name, kind) in rows.fields() {
                let _ = self.attributes.add(name, kind);
            }
            self.keep_body(entry, index as u32, rows, budget);
        }
        let mut next = first_index;
        for operation in &entry.operations {
            match operation {
                Operation::Upsert { body, from, to } => {
                    let rows = &loaded.bodies[*body as usize];
                    for place in *from..*to {
                        self.write(&rows.ids()[place as usize], next, sequence, prepared);
                        next += 1;
                    }
                }
                Operation::DeleteIds(ids) => {
                    for id in ids {
                        self.write(id, DELETED, sequence, prepared);
                    }
                }
                Operation::DeleteRows(rows) => {
                    for row in rows.iter() {
                        self.kill_row(row, sequence, prepared);
                    }
                }
                Operation::Closed(_) => {
                    self.facts.closed = true;
                    break;
                }
                Operation::Purge(_) => {}
            }
        }
        for key in &entry.keys {
            self.keys.entry(key.key.clone()).or_insert_with(|| (sequence, key.clone()));
        }
    }

    /// The newest version of `id` becomes the tail row `index`, or a deletion.
    fn write(&mut self, id: &RecordId, index: u32, sequence: u64, prepared: &Prepared) {
        let newest = self.ids.get(id).copied();
        match newest.map(|at| self.versions[at as usize].index) {
            Some(DELETED) => {}
            Some(row) => self.kill_tail_row(row as usize, sequence),
            None => match prepared.root_rows.get(id) {
                Some(row) => self.hide(*row, sequence),
                None if index == DELETED => return,
                None => {}
            },
        }
        if index != DELETED {
            self.live_now += 1;
        }
        match newest {
            // Operations of one entry: only the last one shows.
            Some(at) if self.versions[at as usize].sequence == sequence => {
                self.versions[at as usize].index = index
            }
            _ => {
                self.versions.push(Version { sequence, index, previous: newest.unwrap_or(NONE) });
                let at = self.versions.len() as u32 - 1;
                match self.ids.get_mut(id) {
                    Some(newest) => *newest = at,
                    None => {
                        self.ids.insert(id.clone(), at);
                    }
                }
            }
        }
    }

    /// A row dies by its number: a tail row, or a root row that lives.
    fn kill_row(&mut self, row: u64, sequence: u64, prepared: &Prepared) {
        match self.codes.rows().binary_search(&row) {
            Ok(index) => self.kill_tail_row(index, sequence),
            Err(_) if prepared.live_root_rows.binary_search(&row).is_ok() => self.hide(row, sequence),
            Err(_) => {}
        }
    }

    fn kill_tail_row(&mut self, index: usize, sequence: u64) {
        let row = &mut self.rows[index];
        if row.dead_at == ALIVE {
            row.dead_at = sequence;
            self.live_now -= 1;
        }
    }

    fn hide(&mut self, root_row: u64, sequence: u64) {
        if let std::collections::hash_map::Entry::Vacant(vacant) = self.hidden.entry(root_row) {
            vacant.insert(sequence);
            self.live_now -= 1;
        }
    }

    /// Keeps the body's rows in memory as long as the budget allows; older bodies are spilled first.
    fn keep_body(&mut self, entry: &Arc<Entry>, index: u32, rows: &Arc<Rows>, budget: &Arc<MemoryBudget>) {
        let bytes = memory_of(rows);
        let mut reservation = budget.reserve(bytes);
        while reservation.is_none() {
            let Some(oldest) = self.resident.pop_front() else { break };
            let oldest = &mut self.bodies[oldest as usize];
            (oldest.rows, oldest.reservation) = (None, None);
            reservation = budget.reserve(bytes);
        }
        let resident = reservation.is_some();
        if resident {
            self.resident.push_back(self.bodies.len() as u32);
        }
        let rows = resident.then(|| rows.clone());
        self.bodies.push(TailBody { entry: entry.clone(), index, rows, reservation });
    }

    fn visible(&self, index: usize, position: u64) -> bool {
        let row = &self.rows[index];
        row.sequence <= position && position < row.dead_at
    }
}

/// About the bytes of memory that rows hold.
pub fn memory_of(rows: &Rows) -> u64 {
    let text = |id: &RecordId| if let RecordId::Str(text) = id { text.len() } else { 0 };
    let ids = rows.ids().iter().map(|id| size_of::<RecordId>() + text(id)).sum::<usize>();
    let columns = rows.columns().iter().map(|c| c.array().get_array_memory_size()).sum::<usize>();
    (ids + columns + rows.vectors().len() * 4) as u64
}

/// The tail under its read lock.
#[derive(Debug)]
pub struct TailReader<'a> {
    inner: RwLockReadGuard<'a, Inner>,
}

impl<'a> TailReader<'a> {
    /// Where the log stands.
    pub fn facts(&self) -> &LogFacts {
        &self.inner.facts
    }

    /// Attribute names and types that the root or an entry fixed.
    pub fn attributes(&self) -> &AttributeSchema {
        &self.inner.attributes
    }

    /// The record of an idempotency key and the entry it is in.
    pub fn key(&self, key: &str) -> Option<&(u64, KeyRecord)> {
        self.inner.keys.get(key)
    }

    /// When the oldest entry arrived.
    pub fn oldest(&self) -> Option<Duration> {
        self.inner.entries.first().map(|entry| entry.arrived)
    }

    /// Entries past `sequence`, in order, with when they arrived. One that was skipped comes without bodies.
    pub fn entries_after(&self, sequence: u64) -> Vec<(Arc<Entry>, Vec<BodyRows>, Duration)> {
        let from = self.inner.entries.partition_point(|entry| entry.entry.sequence <= sequence);
        let entries = self.inner.entries[from..].iter().map(|entry| {
            let bodies =
                (entry.first_body..entry.first_body + entry.bodies).map(|body| self.body(body)).collect();
            (entry.entry.clone(), bodies, entry.arrived)
        });
        entries.collect()
    }

    /// All rows, dead ones included, as one part of a leaf whose centroid is the root mean.
    pub fn part(&self) -> LeafPart<'_> {
        self.inner.codes.part()
    }

    /// Number of rows, dead ones included.
    pub fn rows(&self) -> usize {
        self.inner.rows.len()
    }

    /// Live records minus those of the root, at `position`.
    pub fn live_change(&self, position: u64) -> i64 {
        let after = self.inner.live.partition_point(|(sequence, _)| *sequence <= position);
        after.checked_sub(1).map_or(0, |at| self.inner.live[at].1)
    }

    /// Rows of entries in the tail up to `position`, dead ones included.
    pub fn rows_up_to(&self, position: u64) -> usize {
        self.inner.rows.partition_point(|row| row.sequence <= position)
    }

    /// The index of a tail row by its number.
    pub fn index_of(&self, row: u64) -> Option<usize> {
        self.inner.codes.rows().binary_search(&row).ok()
    }

    /// Whether `row` is the number of a tail row, whatever its state: no root row has it.
    pub fn is_tail_row(&self, row: u64) -> bool {
        self.inner.codes.rows().first().is_some_and(|first| row >= *first)
    }

    /// Whether `row`, of the root or the tail, must not be seen at `position`. Deaths that the root knows are not
    /// looked at here.
    pub fn hides(&self, row: u64, position: u64) -> bool {
        if self.is_tail_row(row) {
            return self.index_of(row).is_none_or(|index| !self.inner.visible(index, position));
        }
        self.inner.hidden.get(&row).is_some_and(|sequence| *sequence <= position)
    }

    /// Whether the tail hides no root row and has no row at all.
    pub fn is_empty(&self) -> bool {
        self.inner.rows.is_empty() && self.inner.hidden.is_empty()
    }

    /// Root rows hidden at `position`, in no order.
    pub fn hidden_root_rows(&self, position: u64) -> impl Iterator<Item = u64> + '_ {
        self.inner.hidden.iter().filter(move |(_, sequence)| **sequence <= position).map(|(row, _)| *row)
    }

    /// What `id` is at `position`.
    pub fn lookup(&self, id: &RecordId, position: u64) -> Lookup {
        let mut at = self.inner.ids.get(id).copied().unwrap_or(NONE);
        while at != NONE {
            let version = self.inner.versions[at as usize];
            if version.sequence <= position {
                let lives = version.index != DELETED && self.inner.visible(version.index as usize, position);
                return if lives { Lookup::Row(version.index) } else { Lookup::Deleted };
            }
            at = version.previous;
        }
        Lookup::Unknown
    }

    /// Indexes of the rows that live at `position`, ascending.
    pub fn visible_rows(&self, position: u64) -> impl Iterator<Item = usize> + '_ {
        (0..self.inner.rows.len()).filter(move |index| self.inner.visible(*index, position))
    }

    /// Ids that the tail speaks of at `position`, ascending: with their row, or without where it deleted them.
    pub fn ids(&self, position: u64) -> Vec<(RecordId, Option<u64>)> {
        let mut out: Vec<_> = self
            .inner
            .ids
            .keys()
            .filter_map(|id| match self.lookup(id, position) {
                Lookup::Unknown => None,
                Lookup::Deleted => Some((id.clone(), None)),
                Lookup::Row(index) => Some((id.clone(), Some(self.row_number(index as usize)))),
            })
            .collect();
        out.sort_unstable();
        out
    }

    /// Number of a tail row.
    pub fn row_number(&self, index: usize) -> u64 {
        self.inner.codes.rows()[index]
    }

    /// Where the record of a tail row is: its body, and its place in it.
    pub fn locate(&self, index: usize) -> (u32, u32) {
        (self.inner.rows[index].body, self.inner.rows[index].place)
    }

    /// A body's rows, or how to read them again.
    pub fn body(&self, body: u32) -> BodyRows {
        let body = &self.inner.bodies[body as usize];
        match &body.rows {
            Some(rows) => BodyRows::Resident(rows.clone()),
            None => BodyRows::Spilled { entry: body.entry.clone(), index: body.index },
        }
    }

    /// The vector of a tail row, if its body is in memory.
    pub fn vector(&self, index: usize) -> Option<&[f32]> {
        let row = self.inner.rows[index];
        self.inner.bodies[row.body as usize].rows.as_ref().map(|rows| rows.vector(row.place as usize))
    }
}
