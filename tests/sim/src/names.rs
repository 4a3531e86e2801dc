//! One client that creates and drops a collection of its own, again and again: a name has one owner, what was dropped is gone,
//! what was created again is empty.

use std::collections::BTreeSet;
use std::time::Duration;

use pando_engine::api::*;
use pando_engine::{Error, ErrorKind};

use crate::client::{Verdict, World, id, rows, tolerable, vector};
use crate::random::Dice;

const NAME: &str = "dropped-and-created";

/// What is certain of the collection.
#[derive(Clone, Debug)]
enum Known {
    /// A creation or a deletion without a clear outcome may still come into effect.
    Nothing,
    /// Nobody has the name.
    Gone,
    /// It is there; with these records, if that is certain.
    There(Option<BTreeSet<RecordId>>),
}

/// The client.
pub struct Names {
    world: World,
    dice: Dice,
    known: Known,
}

impl Names {
    /// A client that did nothing yet.
    pub fn new(world: World, dice: Dice) -> Self {
        Self { world, dice, known: Known::Gone }
    }

    /// Makes its calls; afterwards, in calm weather, [`Names::settle`].
    pub async fn run(mut self) -> Verdict<Self> {
        for _ in 0..self.world.weather.calls / 3 {
            tokio::time::sleep(Duration::from_millis(self.dice.below(300))).await;
            self.step(self.dice.below(5)).await?;
        }
        Ok(self)
    }

    /// Everything works again.
    pub async fn settle(mut self) -> Verdict {
        for step in [1, 0, 2, 3, 4, 1, 0, 3] {
            // An unknown state is cleared up by a deletion that is acknowledged, or by a creation.
            self.step(step).await?;
        }
        match &self.known {
            Known::There(Some(records)) if records.is_empty() => Ok(()),
            known => Err(format!("names: in calm weather the new collection is {known:?}")),
        }
    }

    fn wrong(&self, what: &str, outcome: &dyn std::fmt::Debug) -> Verdict {
        Err(format!("names: {what}, known {:?}: {outcome:?}", self.known))
    }

    async fn step(&mut self, step: u64) -> Verdict {
        let node = self.dice.pick(&self.world.nodes).clone();
        let (dim, metric) = (self.world.weather.dim, self.world.weather.metric);
        match step {
            0 => {
                let create = CreateCollection::new(NAME, dim as u32, metric);
                let outcome =
                    node.call("create", |engine| async move { engine.create_collection(create).await }).await;
                match (outcome, &self.known) {
                    (Some(Ok(_)), Known::There(_)) => return self.wrong("created though it was there", &()),
                    (Some(Ok(_)), _) => self.known = Known::There(Some(BTreeSet::new())),
                    (Some(Err(error)), Known::Gone) if error.kind == ErrorKind::AlreadyExists => {
                        return self.wrong("not created", &error);
                    }
                    (Some(Err(error)), _) if error.kind == ErrorKind::AlreadyExists => {}
                    (Some(Err(error)), _) => self.unclear(&error, "create")?,
                    (None, _) => self.unless_there(),
                }
            }
            1 => {
                match node.call("drop", |engine| async move { engine.delete_collection(NAME).await }).await {
                    Some(Ok(())) if matches!(self.known, Known::Gone) => {
                        return self.wrong("deleted though it was gone", &());
                    }
                    Some(Ok(())) => self.known = Known::Gone,
                    Some(Err(error)) if error.kind == ErrorKind::NotFound => self.absent(&error)?,
                    Some(Err(error)) => {
                        tolerable(&error, &self.world.weather, "delete a collection")?;
                        self.unless_gone();
                    }
                    None => self.unless_gone(),
                }
            }
            2 => {
                let ids: Vec<RecordId> = (0..3).map(|_| id(self.dice.below(50))).collect();
                let records: Vec<_> = ids.iter().map(|id| (id.clone(), vector(&self.dice, dim))).collect();
                let rows = rows(dim, &records, 0);
                match node
                    .call("names: upsert", |engine| async move { engine.upsert(NAME, rows, None).await })
                    .await
                {
                    Some(Ok(_)) if matches!(self.known, Known::Gone) => {
                        return self.wrong("written though it was gone", &());
                    }
                    Some(Ok(_)) => {
                        if let Known::There(Some(records)) = &mut self.known {
                            records.extend(ids);
                        }
                    }
                    Some(Err(error)) if error.kind == ErrorKind::NotFound => self.absent(&error)?,
                    Some(Err(error)) => {
                        tolerable(&error, &self.world.weather, "write")?;
                        self.uncertain_records();
                    }
                    None => self.uncertain_records(),
                }
            }
            3 => {
                let count = node.call("names: count", |engine| async move {
                    engine.count(NAME, Consistency::Strong, At::Now).await
                });
                match (count.await, &self.known) {
                    (Some(Ok(_)), Known::Gone) => return self.wrong("counted though it was gone", &()),
                    (Some(Ok(answer)), Known::There(Some(records)))
                        if answer.count != records.len() as u64 =>
                    {
                        return self.wrong("another count", &answer);
                    }
                    (Some(Err(error)), _) if error.kind == ErrorKind::NotFound => self.absent(&error)?,
                    (Some(Err(error)), _) => tolerable(&error, &self.world.weather, "count")?,
                    _ => {}
                }
            }
            _ => match node.call("list", |engine| async move { engine.list_collections().await }).await {
                Some(Ok(names)) => {
                    let listed = names.iter().any(|name| name == NAME);
                    match (&self.known, listed) {
                        (Known::Gone, true) | (Known::There(_), false) => {
                            return self.wrong("the list", &names);
                        }
                        _ => {}
                    }
                }
                Some(Err(error)) => tolerable(&error, &self.world.weather, "list")?,
                None => {}
            },
        }
        Ok(())
    }

    /// It was not found.
    fn absent(&self, error: &Error) -> Verdict {
        match self.known {
            Known::There(_) => self.wrong("not found", error),
            _ => Ok(()),
        }
    }

    fn unclear(&mut self, error: &Error, what: &str) -> Verdict {
        tolerable(error, &self.world.weather, what)?;
        self.unless_there();
        Ok(())
    }

    /// A creation without a clear outcome changes nothing of a collection that is there.
    fn unless_there(&mut self) {
        if matches!(self.known, Known::Gone) {
            self.known = Known::Nothing;
        }
    }

    /// A deletion without a clear outcome changes nothing of one that is gone.
    fn unless_gone(&mut self) {
        if matches!(self.known, Known::There(_)) {
            self.known = Known::Nothing;
        }
    }

    fn uncertain_records(&mut self) {
        if let Known::There(records) = &mut self.known {
            *records = None;
        }
    }
}
