//! Measures pando-engine in this process: build, search, updates, cold start. See `load-tests/README.md`.

mod arguments;
mod build;
mod cold;
mod data;
mod engine;
mod growth;
mod machine;
mod npy;
mod report;
mod search;
mod truth;
mod updates;

use anyhow::Result;
use clap::Parser;

use arguments::{Arguments, Phase};

// As in the server.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<()> {
    match Arguments::parse().phase {
        Phase::One(_) => both(),
        Phase::Build(args) => build::run(&args),
        Phase::Search(args) => search::run(&args),
        Phase::Updates(args) => updates::run(&args),
        Phase::Growth(args) => growth::run(&args),
        Phase::Cold(args) => cold::run(&args),
        Phase::ColdChild(args) => cold::child(&args),
    }
}

/// `build` and `search`, each in a process of its own.
fn both() -> Result<()> {
    for phase in ["build", "search"] {
        let status = std::process::Command::new(std::env::current_exe()?)
            .arg(phase)
            .args(std::env::args_os().skip(2))
            .status()?;
        anyhow::ensure!(status.success(), "{phase} failed");
    }
    Ok(())
}
