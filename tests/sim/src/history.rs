//! The oracle: the log as storage first took it, folded in memory, and every call that clients made.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pando_engine::api::*;
use pando_format::{BodyPlace, Entry, Operation, Stored};
use pando_store::Key;
use parking_lot::Mutex;
use uuid::Uuid;

use crate::storage::Storage;

/// A live record: its vector, and the call that wrote it.
pub type Live = (Vec<f32>, i64);
/// Live records at one position.
pub type Records = BTreeMap<RecordId, Live>;

/// The attribute that says which call wrote a record.
pub const CALL: &str = "call";

/// An id that never exists and makes each deletion tell itself from others.
pub fn mark(call: i64) -> RecordId {
    RecordId::Str(format!("deletion {call}"))
}

/// What a caller was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Nothing yet, or that nobody knows.
    Unknown,
    /// Stored at this sequence, with so many records affected.
    Done {
        /// Entry.
        sequence: u64,
        /// Records.
        affected: u64,
    },
    /// That nothing was written.
    Refused,
}

#[derive(Clone, Debug)]
struct Call {
    /// Everything acknowledged or read before the call began is at or below this.
    after: u64,
    told: Told,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Applied {
    sequence: u64,
    affected: u64,
}

struct State {
    storage: Storage,
    dim: usize,
    uuid: Uuid,
    /// Records after each entry; the first is the empty beginning.
    positions: Vec<Arc<Records>>,
    applied: BTreeMap<i64, Vec<Applied>>,
    calls: BTreeMap<i64, Call>,
    /// The highest position that an acknowledged write or a finished strong read has.
    seen: u64,
    next_row: u64,
}

/// Clones share one history.
#[derive(Clone)]
pub struct History(Arc<Mutex<State>>);

impl History {
    /// Of a new collection.
    pub fn new(storage: Storage, uuid: Uuid, dim: usize) -> Self {
        Self(Arc::new(Mutex::new(State {
            storage,
            dim,
            uuid,
            positions: vec![Arc::default()],
            applied: BTreeMap::new(),
            calls: BTreeMap::new(),
            seen: 0,
            next_row: 0,
        })))
    }

    /// A write begins.
    pub fn begin(&self, call: i64) {
        let mut state = self.0.lock();
        let after = state.seen;
        state.calls.entry(call).or_insert(Call { after, told: Told::Unknown });
    }

    /// What a strong read that begins now must see at least.
    pub fn seen(&self) -> u64 {
        self.0.lock().seen
    }

    /// A strong read that began when `seen` was that answered from `position`.
    pub fn read_at(&self, seen: u64, position: u64) -> Result<(), String> {
        if position < seen {
            return Err(format!(
                "a strong read of position {position}, though {seen} was known before it began"
            ));
        }
        let mut state = self.0.lock();
        state.seen = state.seen.max(position);
        Ok(())
    }

    /// A write ended.
    pub fn end(&self, call: i64, told: Told) -> Result<(), String> {
        let mut state = self.0.lock();
        state.advance()?;
        if let Told::Done { sequence, .. } = told {
            state.seen = state.seen.max(sequence);
        }
        if let Some(known) = state.calls.get_mut(&call)
            && (known.told == Told::Unknown || told != Told::Unknown)
        {
            known.told = told;
        }
        state.check(call)
    }

    /// Records at a position, which must be in the log.
    pub fn at(&self, position: u64) -> Result<Arc<Records>, String> {
        let mut state = self.0.lock();
        state.advance()?;
        let end = state.positions.len() as u64 - 1;
        let found = state.positions.get(position as usize).cloned();
        found.ok_or_else(|| format!("an answer from position {position} of a log that ends at {end}"))
    }

    /// The log's end.
    pub fn log_end(&self) -> Result<u64, String> {
        let mut state = self.0.lock();
        state.advance()?;
        Ok(state.positions.len() as u64 - 1)
    }

    /// Every call is in the log as its caller was told. How many were done, refused, unknown.
    pub fn check_all(&self) -> Result<[usize; 3], String> {
        let mut state = self.0.lock();
        state.advance()?;
        let mut told = [0; 3];
        for (call, known) in &state.calls {
            state.check(*call)?;
            told[match known.told {
                Told::Done { .. } => 0,
                Told::Refused => 1,
                Told::Unknown => 2,
            }] += 1;
        }
        match state.applied.keys().find(|call| !state.calls.contains_key(call)) {
            Some(call) => Err(format!("call {call} is in the log and nobody made it")),
            None => Ok(told),
        }
    }
}

impl State {
    /// A call is in the log as often and where it may be.
    fn check(&self, call: i64) -> Result<(), String> {
        let Some(known) = self.calls.get(&call) else { return Ok(()) };
        let applied = self.applied.get(&call).map_or(&[][..], Vec::as_slice);
        if applied.len() > 1 {
            return Err(format!("call {call} was applied {} times: {applied:?}", applied.len()));
        }
        if let Some(applied) = applied.first()
            && applied.sequence <= known.after
        {
            let (at, after) = (applied.sequence, known.after);
            return Err(format!("call {call} is at {at}, before {after}, which was known when it began"));
        }
        match (known.told, applied.first()) {
            (Told::Unknown, _) | (Told::Refused, None) => Ok(()),
            (Told::Done { sequence, affected }, Some(applied))
                if (applied.sequence, applied.affected) == (sequence, affected) =>
            {
                Ok(())
            }
            (told, applied) => Err(format!("call {call} was told {told:?}, and the log has {applied:?}")),
        }
    }

    /// Folds entries that came since.
    fn advance(&mut self) -> Result<(), String> {
        loop {
            let sequence = self.positions.len() as u64;
            let Some(bytes) = self.storage.first(&Key::Log { uuid: self.uuid, sequence }) else {
                return Ok(());
            };
            let entry = Entry::decode(&bytes).map_err(|e| format!("log entry {sequence}: {e}"))?;
            if entry.first_row != self.next_row {
                return Err(format!(
                    "log entry {sequence} begins at row {} instead of {}",
                    entry.first_row, self.next_row
                ));
            }
            self.next_row = entry.next_row();
            self.fold(&entry)?;
        }
    }

    fn fold(&mut self, entry: &Entry) -> Result<(), String> {
        let sequence = entry.sequence;
        let wrong = |e: String| format!("log entry {sequence}: {e}");
        let mut bodies = Vec::new();
        for body in &entry.bodies {
            let bytes = match &body.place {
                BodyPlace::Inline(bytes) => bytes.clone(),
                BodyPlace::External(name) => {
                    let key = Key::Batch { uuid: self.uuid, aim: name.aim, nonce: name.nonce.0 };
                    self.storage.first(&key).ok_or_else(|| wrong("a body is not stored".into()))?
                }
            };
            bodies.push(body.rows(&bytes, self.dim).map_err(|e| wrong(e.to_string()))?);
        }
        let mut records = Records::clone(self.positions.last().expect("a beginning"));
        for operation in &entry.operations {
            match operation {
                Operation::Upsert { body, from, to } => {
                    let rows = &bodies[*body as usize];
                    let mut written: BTreeMap<i64, BTreeSet<&RecordId>> = BTreeMap::new();
                    for place in *from as usize..*to as usize {
                        let Some(Value::Int64(call)) = rows.value(place, CALL) else {
                            return Err(wrong("a record without its call".into()));
                        };
                        let id = &rows.ids()[place];
                        written.entry(call).or_default().insert(id);
                        records.insert(id.clone(), (rows.vector(place).to_vec(), call));
                    }
                    for (call, ids) in written {
                        let affected = ids.len() as u64;
                        self.applied.entry(call).or_default().push(Applied { sequence, affected });
                    }
                }
                Operation::DeleteIds(ids) => {
                    let marks: Vec<i64> = ids
                        .iter()
                        .filter_map(|id| match id {
                            RecordId::Str(text) => text.strip_prefix("deletion ")?.parse().ok(),
                            RecordId::U64(_) => None,
                        })
                        .collect();
                    let [call] = marks[..] else { return Err(wrong("a deletion without its call".into())) };
                    let affected = ids.iter().filter(|id| records.remove(id).is_some()).count() as u64;
                    self.applied.entry(call).or_default().push(Applied { sequence, affected });
                }
                other => return Err(wrong(format!("an operation nobody asked for: {other:?}"))),
            }
        }
        self.positions.push(Arc::new(records));
        Ok(())
    }
}
