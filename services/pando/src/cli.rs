//! The command line: flags as DESIGN.md section 9 lists them.

use std::net::SocketAddr;
use std::path::PathBuf;

use bytesize::ByteSize;
use clap::{Args, Parser, Subcommand, ValueEnum};

/// Pando: a vector search engine that lives off immutable roots in object storage.
///
/// Start with `pando demo`, or run `pando serve --data-dir DIR` in one terminal and the other commands in a second one.
///
/// Exit codes: 0 done; 1 it failed, or `verify` found a problem; 2 the command line is wrong.
#[derive(Debug, Parser)]
#[command(name = "pando", version, arg_required_else_help = true)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Args, Clone, Debug)]
pub struct Global {
    /// The server that commands talk to.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "PANDO_SERVER",
        default_value = "http://127.0.0.1:7700"
    )]
    pub server: String,
    /// text for people, json for scripts. Results go to standard output, everything else to standard error.
    #[arg(long, global = true, value_enum, default_value_t)]
    pub output: Output,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    #[default]
    Text,
    /// For scripts.
    Json,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Load real sentences into a fresh server, search them, and go on serving
    Demo(Demo),
    /// Run a server
    Serve(Serve),
    /// Create a collection
    Create(Create),
    /// Load a file of vectors: .npy .parquet .arrow .fvecs .jsonl
    Ingest(Ingest),
    /// Build a root that covers everything written so far
    Compact(Compact),
    /// Find the records nearest to each vector of a file
    Query(Query),
    /// Compare approximate with exact search, on the server
    Recall(Recall),
    /// Measure recall, throughput and latency
    Bench(Bench),
    /// Show records by id
    Fetch(Fetch),
    /// Delete records by id
    Delete(Delete),
    /// Count records
    Count(Collection),
    /// List collections
    Collections,
    /// Show a collection's settings and state
    Describe(Collection),
    /// List a collection's roots, newest first
    Roots(Collection),
    /// Read a root again and check every checksum and that no row is lost or doubled
    Verify(Verify),
    /// Delete what no kept root reaches; the server does so by itself from time to time
    Gc(Gc),
}

#[derive(Args, Debug)]
pub struct Collection {
    /// The collection
    pub name: String,
}

#[derive(Args, Debug)]
pub struct Demo {
    /// Stop after the searches instead of serving
    #[arg(long)]
    pub exit: bool,
    /// Where the data goes; it must be empty or not exist. A temporary directory unless said
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// The API and all writes
    Gateway,
    /// Searches
    Query,
    /// Grows roots
    Compactor,
}

#[derive(Args, Debug)]
pub struct Serve {
    /// Where the data lies; created when it does not exist. One server at a time
    #[arg(long, value_name = "DIR")]
    pub data_dir: PathBuf,
    /// Where gRPC and Arrow Flight are served
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7700")]
    pub listen: SocketAddr,
    /// Where /metrics, /healthz and /readyz are served
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7701")]
    pub http: SocketAddr,
    /// What this process does. On one machine it is all three; without `compactor` roots grow only by command
    #[arg(long, value_enum, value_delimiter = ',', default_value = "gateway,query,compactor")]
    pub role: Vec<Role>,
    /// Threads for searches and compaction [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Memory for cached blocks, vectors and what is not yet in a root
    #[arg(long, value_name = "BYTES", default_value = "1GiB", value_parser = memory)]
    pub cache_memory: ByteSize,
    /// Memory for a compaction's buffers. It changes how long one takes, not what it makes
    #[arg(long, value_name = "BYTES", default_value = "1GiB", value_parser = memory)]
    pub compactor_memory: ByteSize,
    /// Compact by itself when enough was written
    #[arg(long, value_name = "true|false", default_value_t = true, action = clap::ArgAction::Set)]
    pub auto_compact: bool,
}

/// With less nothing runs well.
const LEAST_MEMORY: ByteSize = ByteSize::mib(16);

/// An amount of memory such as `256MiB`.
fn memory(text: &str) -> Result<ByteSize, String> {
    let bytes: ByteSize = text.parse().map_err(|_| "write it as 256MiB or 4GiB".to_owned())?;
    if bytes < LEAST_MEMORY { Err(format!("it must be at least {LEAST_MEMORY}")) } else { Ok(bytes) }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Metric {
    /// 1 - cosine
    Cosine,
    /// Squared Euclidean distance
    L2,
    /// Minus the inner product
    Dot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// With it
    On,
    /// Without it
    Off,
}

#[derive(Args, Debug)]
pub struct Create {
    /// Its name: lower-case letters, digits, '.', '_' and '-', at most 128 characters
    pub name: String,
    /// Elements of a vector, 1 to 16384
    #[arg(long, value_name = "D")]
    pub dimension: u32,
    /// What "near" means
    #[arg(long, value_enum)]
    pub metric: Metric,
    /// Leaves that hold a row's code: 2 finds more, 1 is smaller [default: 2]
    #[arg(long, value_name = "1|2", value_parser = clap::value_parser!(u32).range(1..=2))]
    pub copies: Option<u32>,
    /// Four more bits per dimension, which spare reads of vectors [default: on]
    #[arg(long, value_enum)]
    pub refine: Option<Switch>,
    /// Seeds the index; the same data and seed give the same index
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Records up to which there is no tree, only one leaf [default: 10000]
    #[arg(long, value_name = "N")]
    pub small_limit: Option<u64>,
}

#[derive(Args, Debug)]
pub struct Ingest {
    /// The collection
    pub name: String,
    /// The file; its ending says its format. Ids of .npy and .fvecs are the row positions
    pub file: PathBuf,
    /// The column of ids
    #[arg(long, value_name = "COLUMN", default_value = "id")]
    pub id_column: String,
    /// The column of vectors; all others become attributes
    #[arg(long, value_name = "COLUMN", default_value = "vector")]
    pub vector_column: String,
    /// Leave out the first rows, for going on where an interrupted run stopped
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub skip_rows: u64,
}

#[derive(Args, Debug)]
pub struct Compact {
    /// The collection
    pub name: String,
    /// Return when the root is there, not when the work has begun
    #[arg(long)]
    pub wait: bool,
}

/// Vectors of a file.
#[derive(Args, Clone, Debug)]
pub struct Vectors {
    /// File of query vectors: .npy .fvecs .parquet .arrow .jsonl
    #[arg(long, value_name = "FILE")]
    pub vectors: PathBuf,
    /// The column of vectors, where the file has columns
    #[arg(long, value_name = "COLUMN", default_value = "vector")]
    pub vector_column: String,
    /// Results for each vector, 1 to 10000
    #[arg(long, value_name = "K", default_value_t = 10)]
    pub top_k: u32,
}

/// How hard to search.
#[derive(Args, Clone, Debug, Default)]
#[group(multiple = false)]
pub struct Effort {
    /// Share of the true nearest to aim at, 0.80 to 1.0 [default: 0.95]
    #[arg(long, value_name = "R")]
    pub recall_target: Option<f32>,
    /// Leaves to scan at most, instead of a recall target
    #[arg(long, value_name = "N")]
    pub leaves: Option<u32>,
}

#[derive(Args, Debug)]
pub struct Query {
    /// The collection
    pub name: String,
    #[command(flatten)]
    pub vectors: Vectors,
    #[command(flatten)]
    pub effort: Effort,
    /// Compare with every record
    #[arg(long, conflicts_with = "Effort")]
    pub exact: bool,
    /// Search this root instead of the newest state
    #[arg(long, value_name = "ROOT")]
    pub at: Option<String>,
}

#[derive(Args, Debug)]
pub struct Recall {
    /// The collection
    pub name: String,
    #[command(flatten)]
    pub vectors: Vectors,
    #[command(flatten)]
    pub effort: Effort,
}

#[derive(Args, Debug)]
pub struct Bench {
    /// The collection
    pub name: String,
    #[command(flatten)]
    pub vectors: Vectors,
    #[command(flatten)]
    pub effort: Effort,
    /// True neighbours, a .npy of row positions; exact search gives them when this is missing
    #[arg(long, value_name = "FILE")]
    pub truth: Option<PathBuf>,
    /// Clients, each with a connection of its own and one query under way
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub concurrency: u32,
    /// Length of the measured run
    #[arg(long, value_name = "S", default_value_t = 10.0)]
    pub seconds: f64,
    /// Queries a second, sent on time whether or not earlier ones are answered; latency then counts from the moment a query
    /// was due. Without it each client sends its next query when the last is answered
    #[arg(long, value_name = "QPS")]
    pub rate: Option<f64>,
}

#[derive(Args, Debug)]
pub struct Fetch {
    /// The collection
    pub name: String,
    /// The ids; all digits are a number
    #[arg(required = true, value_name = "ID")]
    pub ids: Vec<String>,
    /// Take ids of digits as text
    #[arg(long)]
    pub string_ids: bool,
}

#[derive(Args, Debug)]
pub struct Delete {
    /// The collection
    pub name: String,
    /// The ids; all digits are a number
    #[arg(long, required = true, num_args = 1.., value_name = "ID")]
    pub ids: Vec<String>,
    /// Take ids of digits as text
    #[arg(long)]
    pub string_ids: bool,
}

#[derive(Args, Debug)]
pub struct Gc {
    /// The collection
    pub name: String,
    /// Delete nothing, say what would be deleted
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Args, Debug)]
pub struct Verify {
    /// The collection
    pub name: String,
    /// Verify this root instead of the newest
    #[arg(long, value_name = "ROOT")]
    pub at: Option<String>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn serve_has_its_defaults() {
        let cli = Cli::try_parse_from(["pando", "serve", "--data-dir", "d"]).unwrap();
        let Command::Serve(serve) = cli.command else { panic!("not serve") };
        assert_eq!(serve.listen.to_string(), "127.0.0.1:7700");
        assert_eq!(serve.http.to_string(), "127.0.0.1:7701");
        assert_eq!(serve.role, [Role::Gateway, Role::Query, Role::Compactor]);
        assert_eq!((serve.cache_memory.as_u64(), serve.compactor_memory.as_u64()), (1 << 30, 1 << 30));
        assert!(serve.auto_compact && serve.threads.is_none());
        let cli = Cli::try_parse_from([
            "pando",
            "serve",
            "--data-dir",
            "d",
            "--role",
            "gateway,query",
            "--cache-memory",
            "256MiB",
            "--auto-compact",
            "false",
            "--threads",
            "3",
            "--output",
            "json",
        ])
        .unwrap();
        assert_eq!(cli.global.output, Output::Json);
        let Command::Serve(serve) = cli.command else { panic!("not serve") };
        assert_eq!((serve.role.len(), serve.cache_memory.as_u64(), serve.threads), (2, 256 << 20, Some(3)));
        assert!(!serve.auto_compact);
    }

    #[test]
    fn flags_may_follow_the_command() {
        let cli = Cli::try_parse_from(["pando", "count", "x", "--server", "http://h:1", "--output", "json"])
            .unwrap();
        assert_eq!((cli.global.server.as_str(), cli.global.output), ("http://h:1", Output::Json));
        let cli = Cli::try_parse_from(["pando", "delete", "x", "--ids", "1", "a", "007"]).unwrap();
        let Command::Delete(delete) = cli.command else { panic!("not delete") };
        assert_eq!(delete.ids, ["1", "a", "007"]);
    }
}
