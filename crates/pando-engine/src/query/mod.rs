//! Reads of one view: searches, exact search, fetch, scan, count, recall.

mod exact;
mod exec;
mod fetch;
mod records;
mod scan;
mod search;
mod top;

pub use exact::search_many as exact_many;
pub use exec::{Plan, SearcherPool, on_cpu, search};
pub use fetch::fetch;
pub use scan::scan;
pub use search::Ranked;
