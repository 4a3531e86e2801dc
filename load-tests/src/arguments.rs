//! The command line.

use std::path::PathBuf;

use bytesize::ByteSize;
use clap::{Args, Parser, Subcommand};
use pando_engine::api::Effort;
use pando_kernels::Metric;

/// Measures pando-engine in this process and appends JSON lines in the form of the peers' measurements.
///
/// Each phase is a process of its own. Filters are not measured: the engine has none yet.
#[derive(Clone, Debug, Parser)]
#[command(name = "pando-bench-engine", version)]
pub struct Arguments {
    #[command(subcommand)]
    pub phase: Phase,
}

/// What is measured.
#[derive(Clone, Debug, Subcommand)]
pub enum Phase {
    /// Build, then search.
    One(Common),
    /// Ingest and first checkpoint into a new index: wall and CPU time, memory, bytes.
    Build(Common),
    /// Opens an index and sweeps efforts: recall, latency with one thread, throughput with two.
    Search(Common),
    /// Upserts of 1, 10 and 100 % and deletes of 1 %, each followed by a checkpoint, on a copy of an index.
    Updates(Common),
    /// The first build, then twenty checkpoints of 1 % each: time, CPU time and bytes beside those of the build.
    Growth(Common),
    /// A fresh process to its first answer, with the page cache of the index dropped and kept.
    Cold(Common),
    /// One fresh process of `cold`.
    #[command(hide = true)]
    ColdChild(Common),
}

/// Settings of all phases.
#[derive(Clone, Debug, Args)]
pub struct Common {
    /// Folder with base.npy, queries.npy and gt_<metric>_ids.npy (base_f16.npy and so on are taken too; ip = dot).
    #[arg(long)]
    pub data: PathBuf,
    /// l2, cosine or dot.
    #[arg(long, default_value = "cosine")]
    pub metric: Metric,
    /// Another set of queries: `lemma` takes queries_lemma.npy and gt_lemma_<metric>_ids.npy.
    #[arg(long)]
    pub query_set: Option<String>,
    /// Instead of the folder's.
    #[arg(long)]
    pub queries_file: Option<PathBuf>,
    /// Instead of the folder's.
    #[arg(long)]
    pub truth_file: Option<PathBuf>,
    /// Only the first queries.
    #[arg(long, default_value_t = 1000)]
    pub queries: usize,
    /// Only the first rows, with exact answers found by the engine: a smoke test.
    #[arg(long)]
    pub limit: Option<usize>,
    /// JSON lines are appended here.
    #[arg(long, default_value = "raw.jsonl")]
    pub out: PathBuf,
    /// Folder of indexes.
    #[arg(long, default_value = "idx")]
    pub work: PathBuf,
    /// The index; `WORK/<set>-pando` unless said.
    #[arg(long)]
    pub index: Option<PathBuf>,
    /// Values of k.
    #[arg(long, value_delimiter = ',', default_values_t = [10, 100])]
    pub k: Vec<usize>,
    /// Efforts of the sweep: recall targets, and `leaves:N`. Unless said, a range of targets.
    #[arg(long, value_delimiter = ',', value_parser = effort)]
    pub efforts: Vec<Effort>,
    /// Instead of a sweep: points as k:effort, such as `10:0.95,100:leaves:30`.
    #[arg(long, value_delimiter = ',', value_parser = point)]
    pub points: Vec<(usize, Effort)>,
    /// Seconds for one point of the sweep.
    #[arg(long, default_value_t = 1.2)]
    pub budget: f64,
    /// Also throughput with two threads.
    #[arg(long)]
    pub threads2: bool,
    /// Also the cost of a call that has next to nothing to do.
    #[arg(long)]
    pub call_cost: bool,
    /// Also latency through the engine's pool (`Engine::query`), as a server runs it.
    #[arg(long)]
    pub pool: bool,
    /// Memory of the engine's caches.
    #[arg(long, default_value = "4GiB")]
    pub cache_memory: ByteSize,
    /// Memory of checkpoints.
    #[arg(long, default_value = "1GiB")]
    pub compactor_memory: ByteSize,
    /// Leaves of each row, 1 or 2.
    #[arg(long, default_value_t = 2)]
    pub copies: u8,
    /// Leave out the codes of four more bits.
    #[arg(long)]
    pub no_refine: bool,
    /// Rows of one upsert.
    #[arg(long, default_value_t = 10_000)]
    pub batch_rows: usize,
    /// A number that is written into each line: the round of an interleaved run.
    #[arg(long)]
    pub round: Option<u32>,
    /// Print nothing.
    #[arg(long)]
    pub quiet: bool,
    /// What the page cache held (`cold` says it to its children).
    #[arg(long, hide = true, default_value = "warm")]
    pub cache: String,
}

fn effort(text: &str) -> Result<Effort, String> {
    let wrong = || format!("{text} is neither a recall target from 0.80 to 1.0 nor leaves:N");
    match text.split_once(':') {
        Some(("leaves", n)) => n.parse().map(Effort::Leaves).map_err(|_| wrong()),
        Some(_) => Err(wrong()),
        None => match text.parse() {
            Ok(target) if (0.8..=1.0).contains(&target) => Ok(Effort::RecallTarget(target)),
            _ => Err(wrong()),
        },
    }
}

fn point(text: &str) -> Result<(usize, Effort), String> {
    let (k, name) = text.split_once(':').ok_or_else(|| format!("{text} is not k:effort"))?;
    Ok((k.parse().map_err(|_| format!("{text} does not begin with a number"))?, effort(name)?))
}

/// An effort as lines show it.
pub fn effort_name(effort: Effort) -> serde_json::Value {
    match effort {
        // Through the text, so that 0.95 is not 0.949999988079071.
        Effort::RecallTarget(target) => {
            serde_json::json!(format!("{target}").parse::<f64>().unwrap_or_default())
        }
        Effort::Leaves(leaves) => serde_json::json!(format!("leaves:{leaves}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn efforts_are_targets_or_leaves() {
        assert_eq!(effort("0.95"), Ok(Effort::RecallTarget(0.95)));
        assert_eq!(effort("leaves:12"), Ok(Effort::Leaves(12)));
        for wrong in ["0.5", "1.1", "leaf:3", "leaves:x", ""] {
            assert!(effort(wrong).is_err(), "{wrong}");
        }
        assert_eq!(point("10:leaves:3"), Ok((10, Effort::Leaves(3))));
        assert_eq!(point("100:0.9"), Ok((100, Effort::RecallTarget(0.9))));
        assert!(point("0.9").is_err() && point("x:0.9").is_err());
        assert_eq!(effort_name(Effort::RecallTarget(0.95)).to_string(), "0.95");
    }
}
