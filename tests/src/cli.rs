//! The command line, run as a person or a script would.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::server::{Server, binary};

/// What a command printed, and how it ended.
#[derive(Debug)]
pub struct Run {
    /// Exit code; -1 after a signal.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Run {
    fn of(output: Output) -> Run {
        Run {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Every JSON value on standard output.
    pub fn json(&self) -> Vec<Value> {
        serde_json::Deserializer::from_str(&self.stdout)
            .into_iter()
            .collect::<Result<_, _>>()
            .unwrap_or_else(|e| panic!("not JSON ({e}): {}\n{}", self.stdout, self.stderr))
    }
}

/// A command without a server, such as `pando --help`.
pub fn pando(args: &[&str]) -> Run {
    Run::of(Command::new(binary()).args(args).stdin(Stdio::null()).output().expect("pando runs"))
}

impl Server {
    /// A command against this server, not started yet, with JSON on standard output.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command.args(args).args(["--server", &self.url(), "--output", "json"]).stdin(Stdio::null());
        command
    }

    /// Runs a command, whatever comes of it.
    pub fn run(&self, args: &[&str]) -> Run {
        Run::of(self.command(args).output().expect("pando runs"))
    }

    /// Runs a command that must succeed and print exactly one JSON value.
    pub fn json(&self, args: &[&str]) -> Value {
        let mut values = self.lines(args);
        assert_eq!(values.len(), 1, "pando {args:?} printed {} values", values.len());
        values.remove(0)
    }

    /// Runs a command that must succeed, and gives all JSON values it printed.
    pub fn lines(&self, args: &[&str]) -> Vec<Value> {
        let run = self.run(args);
        assert_eq!(run.code, 0, "pando {args:?}\n{}\n{}\n{}", run.stdout, run.stderr, self.log_tail());
        run.json()
    }

    /// Runs a command that must fail with an error for people, and gives that.
    pub fn fails(&self, args: &[&str]) -> String {
        let run = self.run(args);
        assert!(run.code > 0, "pando {args:?} ended with {}: {}", run.code, run.stdout);
        let text = format!("{}{}", run.stderr, run.stdout);
        assert!(!text.contains("panicked at"), "pando {args:?}: {text}");
        text
    }

    /// `pando create` with a metric.
    pub fn create(&self, name: &str, dimension: usize, metric: &str) {
        self.json(&["create", name, "--dimension", &dimension.to_string(), "--metric", metric]);
    }

    /// `pando compact --wait`; the root id.
    pub fn compact(&self, name: &str) -> String {
        let outcome = self.json(&["compact", name, "--wait"]);
        outcome["root"].as_str().unwrap_or_else(|| panic!("no root: {outcome}")).to_owned()
    }

    /// `pando count`.
    pub fn count(&self, name: &str) -> u64 {
        let answer = self.json(&["count", name]);
        answer["count"].as_u64().unwrap_or_else(|| panic!("no count: {answer}"))
    }

    /// `pando verify`, which must find nothing wrong.
    pub fn verify(&self, name: &str) -> Value {
        let report = self.json(&["verify", name]);
        assert_eq!(report["ok"], true, "{report}");
        assert_eq!(report["problems"].as_array().map(Vec::len), Some(0), "{report}");
        report
    }
}
