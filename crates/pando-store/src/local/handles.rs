//! Objects that stay open between reads of their parts: opening one costs more than reading a page of it.

use std::collections::HashMap;
use std::sync::Arc;

use metrics::gauge;
use parking_lot::Mutex;

use super::Opened;

/// Files kept open at most. A collection has a few packs and segments that searches read.
const LIMIT: usize = 64;

/// Open objects by key, the least recently used of which goes when there are too many.
#[derive(Debug, Default)]
pub(super) struct Handles {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: HashMap<String, Handle>,
    uses: u64,
    /// Objects that were removed or replaced so far.
    changes: u64,
}

impl State {
    fn publish(&self) {
        gauge!("pando_store_open_files").set(self.open.len() as f64);
    }
}

#[derive(Debug)]
struct Handle {
    opened: Arc<Opened>,
    last_use: u64,
}

impl Handles {
    /// The open object of this key.
    pub(super) fn get(&self, key: &str) -> Option<Arc<Opened>> {
        let mut state = self.state.lock();
        state.uses += 1;
        let now = state.uses;
        let handle = state.open.get_mut(key)?;
        handle.last_use = now;
        Some(handle.opened.clone())
    }

    /// Number to hand to [`Handles::keep`]: taken before the object is opened.
    pub(super) fn changes(&self) -> u64 {
        self.state.lock().changes
    }

    /// Keeps an object open, unless something was removed or replaced since `changes`: it may have been this one.
    pub(super) fn keep(&self, key: &str, opened: &Arc<Opened>, changes: u64) {
        let mut state = self.state.lock();
        if state.changes != changes {
            return;
        }
        state.uses += 1;
        let handle = Handle { opened: opened.clone(), last_use: state.uses };
        let mut dropped = state.open.insert(key.to_owned(), handle);
        if state.open.len() > LIMIT {
            let oldest = state.open.iter().min_by_key(|(_, handle)| handle.last_use);
            if let Some(key) = oldest.map(|(key, _)| key.clone()) {
                dropped = state.open.remove(&key);
            }
        }
        state.publish();
        // Closing a file may take its time.
        drop(state);
        drop(dropped);
    }

    /// Closes an object that was removed or replaced.
    pub(super) fn forget(&self, key: &str) {
        let mut state = self.state.lock();
        state.changes += 1;
        let dropped = state.open.remove(key);
        state.publish();
        drop(state);
        drop(dropped);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.state.lock().open.len()
    }
}
