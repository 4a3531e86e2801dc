//! The index as data: build, add, balance in rounds, navigate, scan. No I/O, no async.
//!
//! Everything here is a pure function of its arguments: the same rows, configuration and parent tree give the same
//! tree on every machine, for any number of threads and any memory budget.

mod build;
mod check;
mod cluster;
mod encode;
mod error;
mod fingerprint;
mod hashing;
mod nodes;
mod reader;
mod rounds;
mod route;
mod routing;
pub mod search;
mod soar;
mod space;
mod types;

pub use build::{build, should_rebuild};
pub use check::{Totals, check, totals};
pub use encode::{EncodedRefine, EncodedRows, encode_leaf};
pub use error::TreeError;
pub use fingerprint::{fingerprint, fingerprint_rows};
pub use pando_kernels::Metric;
pub use rounds::advance;
pub use types::{
    Change, Env, Group, Inner, Leaf, NoRows, Progress, Report, RowSet, Stage, Top, Tree, TreeConfig,
    TreeParams, UNSPLIT, VectorSource,
};
