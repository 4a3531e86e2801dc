//! Write windows: the recent nonces and idempotency keys of the log, kept in the root so that a writer can
//! learn what became of its entry after the entry itself is gone.

use crate::codec::record;
use crate::envelope::stored;
use crate::ids::Nonce;
use crate::object::entry::KeyRecord;

/// So many newest nonces and keys are kept in a root.
pub const WINDOW_KEYS: u64 = 65_536;

record! {
    /// Nonce of a log entry.
    #[derive(Copy, Eq)]
    pub struct WindowNonce {
        /// The entry.
        pub sequence: u64,
        /// Its writer's nonce.
        pub nonce: Nonce,
    }
}

record! {
    /// An idempotency key and the entry it came in.
    #[derive(Eq)]
    pub struct WindowKey {
        /// The entry.
        pub sequence: u64,
        /// The key and its outcome.
        pub record: KeyRecord,
    }
}

record! {
    /// A block of a write window, written by one checkpoint.
    #[derive(Eq, Default)]
    pub struct WindowBlock {
        /// Nonces, by sequence.
        pub nonces: Vec<WindowNonce>,
        /// Keys, by sequence, in an entry's order.
        pub keys: Vec<WindowKey>,
    }
}

stored!(WindowBlock, Window, |block| {
    if !block.nonces.is_sorted_by(|a, b| a.sequence < b.sequence) {
        return Err("its nonces are not in order");
    }
    if !block.keys.is_sorted_by_key(|k| k.sequence) { Err("its keys are not in order") } else { Ok(()) }
});
