//! The index as data: build, add, balance in rounds, navigate, scan. No I/O, no async.
//!
//! Everything here is a pure function of its arguments: the same rows, configuration and parent tree give the same
//! tree on every machine, for any number of threads and any memory budget.

mod build;
mod route;
mod reader;
mod space;
mod hashing;
mod nodes;
mod check;
mod encode;
mod cluster;
mod error;
mod fingerprint;
mod rounds;
pub mod search;
mod types;

pub use build::{build, should_rebuild};
pub use check::{Totals, check, totals};
pub use encode::{EncodedRefine, EncodedRows, encode_leaf};
pub use error::TreeError;
pub use fingerprint::{fingerprint, fingerprint_rows};
pub use pando_kernels::Metric;
pub use rounds::advance;
pub use types::{
    Change, Env, Group, Inner, Leaf, NoRows, Progress, Report, RowSet, Stage, Top, Tree, TreeConfig, TreeParams,
    UNSPLIT, VectorSource,
};
