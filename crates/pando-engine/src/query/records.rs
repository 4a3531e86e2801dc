//! Records of rows that a read found: ids, vectors, attributes, from the root or the tail.

use std::collections::BTreeMap;
use std::sync::Arc;

use pando_format::{RecordId, Rows, Value};

use super::search::Ranked;
use crate::api::{Include, IncludeAttributes, Record};
use crate::environment::Environment;
use crate::error::Result;
use crate::root::{OpenRoot, RowVectors};
use crate::tail::{BodyRows, body_rows};
use crate::view::View;

/// Reads records of one view.
pub struct RecordReader<'a> {
    env: &'a Environment,
    view: &'a View,
    include: &'a Include,
}

/// Where a tail row's record is.
enum Place {
    Root,
    Tail(BodyRows, usize),
}

impl<'a> RecordReader<'a> {
    /// A reader of what `include` asks for.
    pub fn new(env: &'a Environment, view: &'a View, include: &'a Include) -> Self {
        Self { env, view, include }
    }

    fn place(&self, row: u64) -> Place {
        let tail = self.view.tail.read();
        match tail.index_of(row) {
            Some(index) => {
                let (body, place) = tail.locate(index);
                Place::Tail(tail.body(body), place as usize)
            }
            None => Place::Root,
        }
    }

    async fn body(&self, body: BodyRows) -> Result<Arc<Rows>> {
        match body {
            BodyRows::Resident(rows) => Ok(rows),
            BodyRows::Spilled { entry, index } => {
                body_rows(self.env, &entry, index, self.view.tail.frame().dim()).await
            }
        }
    }

    /// The ids of those rows of the root whose ids are in memory.
    pub fn ids_at_hand(&self, rows: &[Ranked]) -> Result<Vec<Option<RecordId>>> {
        let tail = self.view.tail.read();
        let ids = rows.iter().map(|r| match &self.view.root {
            Some(root) if !tail.is_tail_row(r.row) => root.id_at_hand(r.row),
            _ => Ok(None),
        });
        ids.collect()
    }

    /// The id of a row.
    pub async fn id(&self, row: u64) -> Result<RecordId> {
        match (self.place(row), &self.view.root) {
            (Place::Tail(body, place), _) => Ok(self.body(body).await?.ids()[place].clone()),
            (Place::Root, Some(root)) => root.id_of(row).await,
            (Place::Root, None) => Err(crate::rootio::damaged("tail: a row has no record")),
        }
    }

    /// The records of many rows, in the order given. Vectors are read together.
    pub async fn records(&self, rows: Vec<(u64, RecordId)>) -> Result<Vec<Record>> {
        if !self.include.vector && self.include.attributes == IncludeAttributes::None {
            let bare = |(_, id)| Record { id, vector: None, attributes: BTreeMap::new() };
            return Ok(rows.into_iter().map(bare).collect());
        }
        let mut loaded = RowVectors::default();
        if let Some(root) = self.view.root.as_ref().filter(|_| self.include.vector) {
            let mut wanted: Vec<u64> = {
                let tail = self.view.tail.read();
                let root_rows = rows.iter().map(|(row, _)| *row).filter(|row| !tail.is_tail_row(*row));
                root_rows.filter(|row| root.vector(*row, &loaded).is_none()).collect()
            };
            wanted.sort_unstable();
            wanted.dedup();
            if !wanted.is_empty() {
                loaded = root.load_vectors(&wanted).await?;
            }
        }
        let mut out = Vec::with_capacity(rows.len());
        for (row, id) in rows {
            out.push(self.record_with(row, Some(id), &loaded).await?);
        }
        Ok(out)
    }

    /// The record of a row whose id may be known.
    async fn record_with(&self, row: u64, id: Option<RecordId>, loaded: &RowVectors) -> Result<Record> {
        match (self.place(row), &self.view.root) {
            (Place::Tail(body, place), _) => {
                let rows = self.body(body).await?;
                let vector = self.include.vector.then(|| rows.vector(place).to_vec());
                let attributes = self.attributes(|name| rows.value(place, name), || rows.attributes(place));
                Ok(Record { id: id.unwrap_or_else(|| rows.ids()[place].clone()), vector, attributes })
            }
            (Place::Root, Some(root)) => {
                let vector = match self.include.vector {
                    true => Some(self.root_vector(root, row, loaded).await?),
                    false => None,
                };
                let wanted = self.include.attributes != IncludeAttributes::None;
                let (attributes, id) = match (wanted, id) {
                    (false, Some(id)) => (BTreeMap::new(), id),
                    (false, None) => (BTreeMap::new(), root.id_of(row).await?),
                    (true, id) => {
                        let (payload, index) = root.payload(row).await?;
                        let all = || {
                            let columns = payload.columns.iter();
                            columns.filter_map(|c| Some((c.name().to_owned(), c.value(index)?))).collect()
                        };
                        let attributes = self.attributes(|name| payload.value(index, name), all);
                        (attributes, id.unwrap_or_else(|| payload.ids[index].clone()))
                    }
                };
                Ok(Record { id, vector, attributes })
            }
            (Place::Root, None) => Err(crate::rootio::damaged("tail: a row has no record")),
        }
    }

    fn attributes(
        &self,
        one: impl Fn(&str) -> Option<Value>,
        all: impl FnOnce() -> BTreeMap<String, Value>,
    ) -> BTreeMap<String, Value> {
        match &self.include.attributes {
            IncludeAttributes::None => BTreeMap::new(),
            IncludeAttributes::All => all(),
            IncludeAttributes::Named(names) => {
                names.iter().filter_map(|name| Some((name.clone(), one(name)?))).collect()
            }
        }
    }

    async fn root_vector(&self, root: &OpenRoot, row: u64, loaded: &RowVectors) -> Result<Vec<f32>> {
        if let Some(vector) = root.vector(row, loaded) {
            return Ok(vector.to_vec());
        }
        let loaded = root.load_vectors(&[row]).await?;
        Ok(loaded.get(row).map(<[f32]>::to_vec).unwrap_or_default())
    }
}
