//! Writes of one collection: grouped while a put is in flight, exactly one put at a time, in a task of its own, so that a
//! caller that leaves takes nothing with it.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use pando_format::{Entry, Hash, KeyRecord, Nonce, Outcome, RecordId, Stored};
use pando_store::{CreateOutcome, Key};
use tokio::sync::{mpsc, oneshot};

pub use super::assemble::Write;
use super::assemble::{Contents, assemble};
use super::belief::{Action, Attempt, CreateAnswer, Found, Look, Verdict};
use super::reader::{Fetched, fetch_entry};
use crate::catalog::shutting_down;
use crate::collection::Collection;
use crate::environment::Tasks;
use crate::error::{Error, ErrorKind, Result};
use crate::query::on_cpu;
use crate::tail::LoadedEntry;

/// Calls that wait for the writer. More wait at the gateway.
const QUEUE: usize = 1024;
/// Pause before a request is repeated, doubled each time …
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// … up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Most calls of one group.
const GROUP_CALLS: usize = 1024;
/// Most bytes of one group.
const GROUP_BYTES: u64 = 64 << 20;

/// What a caller is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallOutcome {
    /// The entry that holds the write.
    pub sequence: u64,
    /// Records written or deleted.
    pub affected: u64,
    /// Ids that were not found.
    pub missing: u64,
}

/// A write that waits.
pub struct Call {
    write: Write,
    key: Option<String>,
    reply: oneshot::Sender<Result<CallOutcome>>,
}

/// Hands calls to the collection's writer task.
#[derive(Clone, Debug)]
pub struct Writer {
    calls: mpsc::Sender<Call>,
}

impl Writer {
    /// Starts the task; it ends when the collection is dropped.
    pub fn start(collection: &Arc<Collection>) -> Self {
        let (calls, receive) = mpsc::channel(QUEUE);
        let tasks = collection.env.tasks.clone();
        tasks.spawn_to_end(run(Arc::downgrade(collection), receive, tasks.clone()));
        Self { calls }
    }

    /// Writes, and waits until the write is durable. Leaving does not undo it.
    pub async fn write(&self, write: Write, key: Option<String>) -> Result<CallOutcome> {
        let (reply, outcome) = oneshot::channel();
        self.calls.send(Call { write, key, reply }).await.map_err(|_| shutting_down())?;
        outcome.await.map_err(|_| shutting_down())?
    }
}

async fn run(collection: Weak<Collection>, mut calls: mpsc::Receiver<Call>, tasks: Tasks) {
    let mut waiting: Option<Call> = None;
    loop {
        let first = match waiting.take() {
            Some(call) => call,
            None => tokio::select! {
                // A group that was begun is finished; what waits behind it is told that the server stops.
                biased;
                () = tasks.stopping() => return,
                call = calls.recv() => match call {
                    Some(call) => call,
                    None => return,
                },
            },
        };
        let Some(collection) = collection.upgrade() else { return };
        let mut bytes = first.write.bytes();
        let mut group = vec![first];
        while group.len() < GROUP_CALLS {
            let Ok(call) = calls.try_recv() else { break };
            bytes += call.write.bytes();
            if bytes > GROUP_BYTES {
                waiting = Some(call);
                break;
            }
            group.push(call);
        }
        metrics::histogram!("pando_write_group_calls").record(group.len() as f64);
        write_group(&collection, group).await;
    }
}

/// A call that passed validation.
struct Admitted {
    call: Call,
    hash: Option<Hash>,
}

/// Writes one group, and tells every caller.
async fn write_group(collection: &Arc<Collection>, group: Vec<Call>) {
    let deadline = collection.env.clock.now() + collection.env.settings.write_deadline;
    let mut group = group;
    // An entry of somebody else may come between: then everything is validated again on what it changed.
    while !group.is_empty() {
        let (admitted, later, position) = admit(collection, group).await;
        group = later;
        if admitted.is_empty() {
            continue;
        }
        match attempt(collection, &admitted, position, deadline).await {
            Ok(Step::Written { sequence, outcomes }) => {
                for (admitted, outcome) in admitted.into_iter().zip(outcomes) {
                    let Outcome { affected, missing } = outcome;
                    let _ = admitted.call.reply.send(Ok(CallOutcome { sequence, affected, missing }));
                }
            }
            Ok(Step::Again) => group.splice(0..0, admitted.into_iter().map(|a| a.call)).for_each(drop),
            Err(error) => {
                for admitted in admitted {
                    let _ = admitted.call.reply.send(Err(error.clone()));
                }
            }
        }
    }
}

/// Refuses what cannot be written, answers repeated keys, and keeps back calls whose key is in this very group or that
/// come after a closing in it. Also the position of the log at which all this is true.
async fn admit(collection: &Arc<Collection>, group: Vec<Call>) -> (Vec<Admitted>, Vec<Call>, u64) {
    let mut admitted: Vec<Admitted> = Vec::with_capacity(group.len());
    let mut later = Vec::new();
    let mut closing = false;
    let view = collection.view();
    let (facts, mut attributes) = {
        let tail = view.tail.read();
        (tail.facts().clone(), tail.attributes().clone())
    };
    for call in group {
        if closing {
            later.push(call);
            continue;
        }
        if facts.closed {
            let _ = call.reply.send(Err(collection.closed()));
            continue;
        }
        if let Err(error) = collection.check_backlog(&call.write) {
            let _ = call.reply.send(Err(error));
            continue;
        }
        let mut hash = None;
        if let Some(key) = &call.key {
            if admitted.iter().any(|a| a.call.key.as_ref() == Some(key)) {
                later.push(call);
                continue;
            }
            match repeated(collection, key, &call.write).await {
                Ok(Repeat::Fresh(body_hash)) => hash = Some(body_hash),
                Ok(Repeat::Done(outcome)) => {
                    let _ = call.reply.send(Ok(outcome));
                    continue;
                }
                Err(error) => {
                    let _ = call.reply.send(Err(error));
                    continue;
                }
            }
        }
        if let Write::Upsert(rows) = &call.write
            && let Err(error) = attributes.add_all(rows.fields())
        {
            let message = format!("{error}; an attribute keeps the type of its first value");
            let _ = call.reply.send(Err(Error::invalid("ATTRIBUTE_TYPE", message)));
            continue;
        }
        closing = matches!(call.write, Write::Close);
        admitted.push(Admitted { call, hash });
    }
    (admitted, later, facts.sequence)
}

enum Repeat {
    /// Not seen before; the hash to be stored with it.
    Fresh(Hash),
    /// The call was done already.
    Done(CallOutcome),
}

async fn repeated(collection: &Arc<Collection>, key: &str, write: &Write) -> Result<Repeat> {
    let write = write.clone();
    let hash = on_cpu(&collection.env.cpu, move || write.hash()).await??;
    let found = loop {
        let view = collection.view();
        let in_tail = view.tail.read().key(key).cloned();
        if in_tail.is_some() {
            break in_tail;
        }
        match collection.key_in_root(&view, key).await {
            Err(error) => collection.renewed(&view, error).await?,
            in_root => break in_root?,
        }
    };
    match found {
        None => Ok(Repeat::Fresh(hash)),
        Some((sequence, record)) if record.body_hash == hash => {
            let Outcome { affected, missing } = record.outcome;
            Ok(Repeat::Done(CallOutcome { sequence, affected, missing }))
        }
        Some(_) => Err(Error::invalid(
            "IDEMPOTENCY_KEY_REUSED",
            "this idempotency key was used for another write; use a new key for new data",
        )),
    }
}

enum Step {
    Written { sequence: u64, outcomes: Vec<Outcome> },
    Again,
}

/// One entry: assembled, created, believed, applied. The calls were admitted at `position`: what a reader found in the log
/// since then may use their keys, change types or close the log.
async fn attempt(
    collection: &Arc<Collection>,
    admitted: &[Admitted],
    position: u64,
    deadline: Duration,
) -> Result<Step> {
    let env = &collection.env;
    let view = collection.view();
    let facts = view.tail.facts();
    if facts.sequence != position {
        return Ok(Step::Again);
    }
    let outcomes = match outcomes(collection, admitted, facts.sequence).await {
        Err(error) => return collection.renewed(&view, error).await.map(|()| Step::Again),
        outcomes => outcomes?,
    };
    let writes: Vec<Write> = admitted.iter().map(|a| a.call.write.clone()).collect();
    let (dim, aim, random) = (collection.dim(), facts.sequence, env.random.clone());
    let mut contents =
        on_cpu(&env.cpu, move || assemble(&writes, dim, aim, move || random.bytes16())).await??;
    if contents.operations.is_empty() {
        // Nothing to write (an empty upsert, a delete of no ids): true of the position that was read.
        return Ok(Step::Written { sequence: facts.sequence, outcomes });
    }
    for (admitted, outcome) in admitted.iter().zip(&outcomes) {
        if let (Some(key), Some(body_hash)) = (&admitted.call.key, admitted.hash) {
            contents.keys.push(KeyRecord { key: key.clone(), body_hash, outcome: *outcome });
        }
    }
    let entry = entry(collection, &facts, &contents);
    let rows = std::mem::take(&mut contents.rows);
    let loaded = LoadedEntry { entry: Arc::new(entry), bodies: rows };
    // Codes and lookups need no place in the log: they are worked out while the put is on its way.
    let put = put(collection, &loaded.entry, contents, deadline);
    let (put, prepared) = tokio::join!(put, collection.prepare(&view, &loaded));
    let sequence = facts.sequence + 1;
    match put? {
        Verdict::Written => {
            let applied = async {
                if let Err(error) = collection.apply(loaded, view.clone(), prepared).await {
                    collection.renewed(&view, error).await?;
                }
                if collection.view().tail.facts().sequence < sequence {
                    // It was folded into a root before it was applied here, or the root was collected.
                    collection.catch_up_with_heads().await?;
                }
                Ok::<(), Error>(())
            };
            match applied.await {
                Ok(()) => Ok(Step::Written { sequence, outcomes }),
                // It is in the log, but reads here do not see it yet: neither a success nor a failure.
                Err(error) if error.kind == ErrorKind::Unavailable => {
                    Err(undecided(Verdict::Unknown).with_internal(error.internal.unwrap_or(error.message)))
                }
                Err(error) => Err(error),
            }
        }
        Verdict::Taken => {
            collection.catch_up().await?;
            Ok(Step::Again)
        }
        Verdict::Passed { .. } => {
            collection.catch_up_with_heads().await?;
            Ok(Step::Again)
        }
        verdict @ (Verdict::NotWritten | Verdict::Unknown) => Err(undecided(verdict)),
    }
}

fn entry(collection: &Collection, facts: &crate::tail::LogFacts, contents: &Contents) -> Entry {
    Entry {
        uuid: collection.record.uuid,
        sequence: facts.sequence + 1,
        nonce: Nonce(collection.env.random.bytes16()),
        first_row: facts.next_row,
        rows: contents.count,
        bytes: contents.bytes,
        cumulative_rows: facts.cumulative_rows + contents.count,
        cumulative_bytes: facts.cumulative_bytes + contents.bytes,
        operations: contents.operations.clone(),
        keys: contents.keys.clone(),
        bodies: contents.bodies.iter().map(|(body, _)| body.clone()).collect(),
    }
}

/// What each caller will be told, worked out on the position that the entry follows.
async fn outcomes(
    collection: &Arc<Collection>,
    admitted: &[Admitted],
    position: u64,
) -> Result<Vec<Outcome>> {
    // State of ids that earlier calls of the group touched.
    let mut group: HashMap<RecordId, bool> = HashMap::new();
    let deletes = admitted.iter().any(|a| matches!(a.call.write, Write::DeleteIds(_)));
    let mut out = Vec::with_capacity(admitted.len());
    for admitted in admitted {
        out.push(match &admitted.call.write {
            Write::Upsert(rows) => {
                let mut ids: Vec<&RecordId> = rows.ids().iter().collect();
                ids.sort_unstable();
                ids.dedup();
                if deletes {
                    group.extend(ids.iter().map(|id| ((*id).clone(), true)));
                }
                Outcome { affected: ids.len() as u64, missing: 0 }
            }
            Write::DeleteIds(ids) => {
                let mut unique = ids.clone();
                unique.sort_unstable();
                unique.dedup();
                let rows = crate::query::rows_of(&collection.view(), position, &unique).await?;
                let mut affected = 0;
                for (id, row) in unique.iter().zip(rows) {
                    affected += u64::from(group.insert(id.clone(), false).unwrap_or(row.is_some()));
                }
                Outcome { affected, missing: unique.len() as u64 - affected }
            }
            Write::Close => Outcome::default(),
        });
    }
    Ok(out)
}

/// Bodies first, then the entry, as [`belief::Attempt`] decides (DESIGN section 4): this function only does the requests
/// that it asks for.
async fn put(
    collection: &Collection,
    entry: &Entry,
    contents: Contents,
    deadline: Duration,
) -> Result<Verdict> {
    let env = &collection.env;
    let uuid = collection.record.uuid.0;
    for (body, bytes) in contents.bodies {
        if let pando_format::BodyPlace::External(name) = body.place {
            let key = Key::Batch { uuid, aim: name.aim, nonce: name.nonce.0 };
            // Its name is new each time, so that trying again is safe.
            env.store.put_content_addressed(&key, bytes).await.map_err(Error::from)?;
        }
    }
    let key = Key::Log { uuid, sequence: entry.sequence };
    let bytes = bytes::Bytes::from(entry.encode().map_err(Error::from)?);
    let mut attempt = Attempt::new(entry.sequence);
    let mut pause = FIRST_PAUSE;
    loop {
        let answered = match attempt.action() {
            Action::Done(verdict) => return Ok(verdict),
            Action::Create => {
                attempt.sending();
                let answer = match env.store.create_if_absent(&key, bytes.clone()).await {
                    Ok(CreateOutcome::Created) => CreateAnswer::Created,
                    Ok(CreateOutcome::Exists) => CreateAnswer::Exists,
                    Err(error) if error.kind() == pando_store::ErrorKind::Unavailable => {
                        CreateAnswer::NotApplied
                    }
                    Err(_) => CreateAnswer::Unclear,
                };
                attempt.created(answer);
                matches!(answer, CreateAnswer::Created | CreateAnswer::Exists)
            }
            Action::Read => match fetch_entry(env, collection.record.uuid, entry.sequence).await {
                Ok(Fetched::Entry(found)) => {
                    attempt.read(if found.nonce == entry.nonce { Found::Own } else { Found::Other });
                    true
                }
                Ok(Fetched::Absent) => {
                    attempt.read(Found::Absent);
                    // Somebody's delayed create, or an eventually consistent read: not a reason to hammer the store.
                    false
                }
                Err(error) if error.kind != ErrorKind::Unavailable => return Err(error),
                Err(_) => false,
            },
            Action::Look => match collection.newest_facts().await {
                Ok(head) => {
                    attempt.looked(head, Look::After);
                    true
                }
                Err(error) if error.kind != ErrorKind::Unavailable => return Err(error),
                Err(_) => false,
            },
            Action::AskWindow => match collection.window_says(entry.sequence, &entry.nonce).await {
                Ok(answer) => {
                    attempt.window(answer);
                    true
                }
                Err(error) if error.kind != ErrorKind::Unavailable => return Err(error),
                Err(_) => false,
            },
        };
        if answered {
            continue;
        }
        if env.clock.now() >= deadline {
            return Ok(attempt.give_up());
        }
        env.clock.sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// The caller is told that nothing was written, or that nobody knows.
fn undecided(verdict: Verdict) -> Error {
    let (reason, message) = match verdict {
        Verdict::NotWritten => {
            ("STORAGE_UNAVAILABLE", "storage does not answer; nothing was written, try again")
        }
        _ => (
            "OUTCOME_UNKNOWN",
            "it is not known whether the write was stored; repeat it, with the same idempotency key if others write the same records",
        ),
    };
    Error::new(ErrorKind::Unavailable, reason, message).with_retry_after(Duration::from_secs(1))
}
