//! Every live record of one position in id order: id runs of the root merged with the ids of the tail.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::stream::{self, StreamExt};
use pando_format::{IdBlock, IdIndex, IdKind, IdRunPart, RecordId};

use super::records::RecordReader;
use crate::api::{Include, Record, ScanPage, Token};
use crate::engine::ScanStream;
use crate::environment::Environment;
use crate::error::Result;
use crate::root::OpenRoot;
use crate::rootio::newest_first;
use crate::view::View;

/// Goes through one id run; holds one block.
struct RunCursor {
    root: Arc<OpenRoot>,
    parts: VecDeque<IdRunPart>,
    index: Option<(Arc<IdIndex>, usize)>,
    block: Option<Arc<IdBlock>>,
    at: usize,
}

impl RunCursor {
    /// The id at the cursor and its row; `None` at the end.
    async fn peek(&mut self) -> Result<Option<(RecordId, u64)>> {
        loop {
            if let Some(block) = &self.block
                && self.at < block.len()
            {
                return Ok(Some((block.id(self.at).to_id(), block.rows()[self.at])));
            }
            if let Some((index, next)) = &mut self.index
                && let Some(entry) = index.blocks.get(*next)
            {
                *next += 1;
                let block = entry.block;
                (self.block, self.at) = (Some(self.root.id_block(block).await?), 0);
                continue;
            }
            let Some(part) = self.parts.pop_front() else { return Ok(None) };
            self.index = Some((self.root.id_index(&part).await?, 0));
        }
    }
}

/// Merges runs and tail.
struct Merge {
    env: Environment,
    view: Arc<View>,
    position: u64,
    include: Include,
    page_size: usize,
    token: Token,
    /// Newest first, with the head of each.
    runs: Vec<(RunCursor, Option<(RecordId, u64)>)>,
    /// Kinds of ids whose runs are still to come.
    kinds: VecDeque<IdKind>,
    tail: VecDeque<(RecordId, Option<u64>)>,
    ended: bool,
}

/// A stream of pages of at most `page_size` records. An empty collection gives one empty page.
pub async fn scan(
    env: Environment,
    view: Arc<View>,
    position: u64,
    token: Token,
    include: Include,
    page_size: usize,
) -> Result<ScanStream> {
    let tail = view.tail.read().ids(position).into();
    let merge = Merge {
        env,
        view,
        position,
        include,
        page_size,
        token,
        runs: Vec::new(),
        kinds: [IdKind::U64, IdKind::Str].into(),
        tail,
        ended: false,
    };
    let pages = stream::unfold((merge, true), |(mut merge, first)| async move {
        if merge.ended {
            return None;
        }
        match merge.page().await {
            Ok(page) if page.records.is_empty() && !first => None,
            Ok(page) => Some((Ok(page), (merge, false))),
            Err(error) => {
                merge.ended = true;
                Some((Err(error), (merge, false)))
            }
        }
    });
    Ok(pages.boxed())
}

impl Merge {
    async fn page(&mut self) -> Result<ScanPage> {
        let mut rows: Vec<(u64, RecordId)> = Vec::with_capacity(self.page_size.min(4096));
        while rows.len() < self.page_size {
            let Some((id, row)) = self.next().await? else {
                self.ended = true;
                break;
            };
            if let Some(row) = row {
                rows.push((row, id));
            }
        }
        let records: Vec<Record> =
            RecordReader::new(&self.env, &self.view, &self.include).records(rows).await?;
        let root = self.view.root.as_ref().map(|root| root.id());
        Ok(ScanPage { records, root, token: self.token })
    }

    /// The next id of all, and its row if it lives.
    async fn next(&mut self) -> Result<Option<(RecordId, Option<u64>)>> {
        loop {
            let smallest =
                self.runs.iter().filter_map(|(_, head)| head.as_ref()).map(|(id, _)| id).min().cloned();
            let Some(smallest) = smallest else {
                // Strings come after all integers: their runs are opened when the integers are through.
                if self.open_next_kind().await? {
                    continue;
                }
                return Ok(self.tail.pop_front());
            };
            if self.tail.front().is_some_and(|(id, _)| *id < smallest) {
                return Ok(self.tail.pop_front());
            }
            let mut newest = None;
            for (cursor, head) in &mut self.runs {
                if head.as_ref().is_some_and(|(id, _)| *id == smallest) {
                    newest = newest.or(head.as_ref().map(|(_, row)| *row));
                    cursor.at += 1;
                    *head = cursor.peek().await?;
                }
            }
            if self.tail.front().is_some_and(|(id, _)| *id == smallest) {
                return Ok(self.tail.pop_front());
            }
            return Ok(Some((smallest, newest.filter(|row| self.lives(*row)))));
        }
    }

    /// Whether a root row is live at the position.
    fn lives(&self, row: u64) -> bool {
        let live = self.view.root.as_ref().is_some_and(|root| root.is_live(row));
        live && !self.view.tail.read().hides(row, self.position)
    }

    async fn open_next_kind(&mut self) -> Result<bool> {
        let Some(root) = self.view.root.clone() else { return Ok(false) };
        self.runs.clear();
        let Some(kind) = self.kinds.pop_front() else { return Ok(false) };
        for run in newest_first(&root.manifest().id_runs, kind) {
            let parts = run.parts.iter().cloned().collect();
            let mut cursor = RunCursor { root: root.clone(), parts, index: None, block: None, at: 0 };
            let head = cursor.peek().await?;
            self.runs.push((cursor, head));
        }
        Ok(true)
    }
}
