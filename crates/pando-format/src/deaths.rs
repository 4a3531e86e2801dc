//! Deaths: dead rows that are still in leaves or segments.

use crate::codec::record;
use crate::envelope::stored;
use crate::row_set::RowSet;

record! {
    /// A block of dead rows: one chunk of 65,536 row numbers, or the delta of one checkpoint.
    #[derive(Default)]
    pub struct DeathBlock {
        /// The rows.
        pub rows: RowSet,
    }
}

stored!(DeathBlock, Deaths);
