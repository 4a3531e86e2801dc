//! Reads of one view: searches, exact search, fetch, scan, count, recall.

mod exact;
mod exec;
mod fetch;
mod recall;
mod records;
mod scan;
mod search;
mod top;

pub use exec::{Place, Plan, SearcherPool, exact, on_cpu, search};
pub use fetch::{fetch, rows_of};
pub use recall::measure_recall;
pub use scan::scan;
pub use search::Ranked;
