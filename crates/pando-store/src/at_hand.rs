//! Reads that never wait: bytes of a local object that the operating system has in memory.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use crate::Store;
use crate::keys::{Key, ObjectKind};
use crate::local::Opened;

/// An object of a local directory that is open already. Its bytes are *not* checked: who reads knows their checksums.
pub struct AtHand<'a> {
    store: &'a Store,
    kind: ObjectKind,
    opened: Arc<Opened>,
    read: Cell<u64>,
}

impl fmt::Debug for AtHand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AtHand({:?})", self.kind)
    }
}

impl Store {
    /// The object, if it can be read on the spot: it lies in a local directory and was read a short time ago
    /// ([`Store::get_range`] and [`Store::get_ranges`] leave objects open). Costs a lookup, no system call.
    pub fn at_hand(&self, key: &Key) -> Option<AtHand<'_>> {
        let local = self.inner.local.as_ref()?;
        let opened = local.kept_open(self.path(key).ok()?.as_ref())?;
        Some(AtHand { store: self, kind: key.kind(), opened, read: Cell::new(0) })
    }
}

impl AtHand<'_> {
    /// Fills `buf` from `offset` on if the operating system has all of it in memory. `false`: it has not, or it cannot tell;
    /// [`Store::get_ranges`] reads it, and says what is wrong if something is.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> bool {
        let there = self.opened.read_from_memory(offset, buf);
        if there {
            self.read.set(self.read.get() + buf.len() as u64);
        }
        there
    }
}

impl Drop for AtHand<'_> {
    fn drop(&mut self) {
        self.store.inner.instruments.read(self.kind, self.read.get());
    }
}
