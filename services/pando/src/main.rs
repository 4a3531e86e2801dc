//! The pando binary: a server, and the commands that talk to one.

mod bench;
mod cli;
mod commands;
mod demo;
mod files;
mod ingest;
mod output;
mod search;
mod serve;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use pando_client::{Client, ConnectOptions};
use pando_telemetry::LogFormat;

use crate::cli::{Cli, Command, Output};
use crate::output::Printer;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let printer = Printer(cli.global.output);
    let (format, level) = match (&cli.command, cli.global.output) {
        (Command::Serve(_), Output::Json) => (LogFormat::Json, "info"),
        (Command::Serve(_), Output::Text) => (LogFormat::Text, "info"),
        (Command::Demo(_), _) => (LogFormat::Text, "warn"),
        _ => (LogFormat::Text, "error"),
    };
    pando_telemetry::init_logging(format, level);
    let result = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(run(cli, printer)));
    match result {
        Ok(code) => code,
        Err(error) => {
            printer.error(&error);
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: Cli, printer: Printer) -> Result<ExitCode> {
    let connect = async || Client::connect(&cli.global.server, ConnectOptions::default()).await;
    match &cli.command {
        Command::Demo(args) => demo::run(args, printer).await?,
        Command::Serve(args) => serve::run(args, printer).await?,
        Command::Create(args) => commands::create(&connect().await?, args, printer).await?,
        Command::Ingest(args) => ingest::run(&connect().await?, args, printer).await?,
        Command::Compact(args) => commands::compact(&connect().await?, args, printer).await?,
        Command::Query(args) => search::query(&connect().await?, args, printer).await?,
        Command::Recall(args) => search::recall(&connect().await?, args, printer).await?,
        Command::Bench(args) => bench::run(&cli.global.server, args, printer).await?,
        Command::Fetch(args) => commands::fetch(&connect().await?, args, printer).await?,
        Command::Delete(args) => commands::delete(&connect().await?, args, printer).await?,
        Command::Count(args) => commands::count(&connect().await?, args, printer).await?,
        Command::Collections => commands::collections(&connect().await?, printer).await?,
        Command::Describe(args) => commands::describe(&connect().await?, args, printer).await?,
        Command::Roots(args) => commands::roots(&connect().await?, args, printer).await?,
        Command::Gc(args) => commands::gc(&connect().await?, args, printer).await?,
        Command::Verify(args) => return commands::verify(&connect().await?, args, printer).await,
    }
    Ok(ExitCode::SUCCESS)
}
