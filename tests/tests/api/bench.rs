//! `pando bench` tells the truth when the server stalls.

use std::process::{Command, Stdio};
use std::time::Duration;

use pando_tests::Fixture;
use pando_tests::data::Mixture;
use pando_tests::files::write_npy;
use serde_json::Value;

const RATE: u64 = 100;
const SECONDS: u64 = 6;

/// An open loop counts a stall for every query that was due while it lasted: a second of standstill shows in the
/// ninetieth percentile, where a client that waits for its answer would have sent one query and hidden the rest.
#[test]
fn an_open_loop_feels_a_stall() {
    let f = Fixture::start();
    let s = &f.server;
    let mixture = Mixture::new(1, 16, 20);
    let (base, queries) = (f.path("base.npy"), f.path("queries.npy"));
    write_npy(&base, &mixture.rows(1, 500));
    write_npy(&queries, &mixture.rows(2, 5));
    s.create("things", 16, "l2");
    s.json(&["ingest", "things", base.to_str().expect("UTF-8")]);

    let (rate, seconds) = (RATE.to_string(), SECONDS.to_string());
    let queries = queries.to_str().expect("UTF-8");
    let args = ["bench", "things", "--vectors", queries, "--concurrency", "2", "--seconds", &seconds];
    let mut bench = s.command(&args);
    let bench = bench.args(["--rate", &rate]).stdout(Stdio::piped()).spawn().expect("pando runs");
    // The first pass over five queries takes no time to speak of; a second standstill is there in case it did.
    for wait in [2000, 1500] {
        std::thread::sleep(Duration::from_millis(wait));
        signal(s.pid(), "STOP");
        std::thread::sleep(Duration::from_millis(1000));
        signal(s.pid(), "CONT");
    }
    let out = bench.wait_with_output().expect("pando runs");
    assert!(out.status.success());
    let line: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!((&line["loop"], &line["errors"]), (&"open".into(), &0.into()), "{line}");
    let sent = line["queries"].as_u64().expect("a number");
    assert!(sent >= RATE * SECONDS - 2, "every query that was due is counted: {line}");
    assert!(line["p90_us"].as_u64().expect("a number") > 100_000, "the stall is felt: {line}");
}

fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status();
    assert!(sent.expect("kill").success());
}
