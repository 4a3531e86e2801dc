//! Records by id.

use super::records::RecordReader;
use crate::api::{Include, Record};
use crate::environment::Environment;
use crate::error::Result;
use crate::tail::Lookup;
use crate::view::View;
use pando_format::RecordId;

/// The live row of each id at `position`.
pub async fn rows_of(view: &View, position: u64, ids: &[RecordId]) -> Result<Vec<Option<u64>>> {
    let mut rows = vec![None; ids.len()];
    let mut ask: Vec<usize> = Vec::new();
    {
        let tail = view.tail.read();
        for (at, id) in ids.iter().enumerate() {
            match tail.lookup(id, position) {
                Lookup::Row(index) => rows[at] = Some(tail.row_number(index as usize)),
                Lookup::Deleted => {}
                Lookup::Unknown => ask.push(at),
            }
        }
    }
    if let Some(root) = &view.root {
        let unknown: Vec<RecordId> = ask.iter().map(|at| ids[*at].clone()).collect();
        let found = root.lookup_ids(&unknown).await?;
        let tail = view.tail.read();
        for (at, row) in ask.into_iter().zip(found) {
            rows[at] = row.filter(|row| !tail.hides(*row, position));
        }
    }
    Ok(rows)
}

/// The record of each id at `position`, in the order asked for.
pub async fn fetch(
    env: &Environment,
    view: &View,
    position: u64,
    ids: &[RecordId],
    include: &Include,
) -> Result<Vec<Option<Record>>> {
    let rows = rows_of(view, position, ids).await?;
    let found = ids.iter().zip(&rows).filter_map(|(id, row)| Some(((*row)?, id.clone()))).collect();
    let mut records = RecordReader::new(env, view, include).records(found).await?.into_iter();
    Ok(rows.iter().map(|row| row.and_then(|_| records.next())).collect())
}
