//! The binary, as a script runs it: exit codes, and errors as JSON.

use std::process::{Command, Output};

fn pando(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pando")).args(args).env_remove("PANDO_SERVER").output().unwrap()
}

#[test]
fn exit_codes_tell_a_wrong_command_from_a_failed_one() {
    assert_eq!(pando(&["--help"]).status.code(), Some(0));
    for wrong in [
        &["nonsense"][..],
        &["create", "x", "--dimension", "4"],
        &["create", "x", "--dimension", "-4", "--metric", "l2"],
        &["create", "x", "--dimension", "4", "--metric", "manhattan"],
        &["create", "x", "--dimension", "4", "--metric", "l2", "--copies", "3"],
        &["delete", "x"],
        &["fetch", "x"],
        &["query", "x", "--vectors", "q.npy", "--exact", "--leaves", "3"],
        &["query", "x", "--vectors", "q.npy", "--recall-target", "0.9", "--leaves", "3"],
        &["serve", "--data-dir", "d", "--role", "king"],
        &["serve", "--data-dir", "d", "--auto-compact", "maybe"],
        &["serve", "--data-dir", "d", "--cache-memory", "much"],
        &["serve", "--data-dir", "d", "--cache-memory", "12"],
    ] {
        assert_eq!(pando(wrong).status.code(), Some(2), "{wrong:?}");
    }
    // Port 1 is nobody's.
    let failed = pando(&["count", "x", "--server", "http://127.0.0.1:1"]);
    assert_eq!(failed.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&failed.stderr).contains("no Pando server answers at http://127.0.0.1:1")
    );
    assert_eq!(pando(&["count", "x", "--server", "not an address"]).status.code(), Some(1));
}

#[test]
fn errors_are_json_when_asked_for() {
    let failed = pando(&["count", "x", "--server", "http://127.0.0.1:1", "--output", "json"]);
    assert!(failed.stdout.is_empty());
    let error: serde_json::Value = serde_json::from_slice(&failed.stderr).unwrap();
    assert_eq!(error["error"]["code"], "Unavailable", "{error}");
    assert_eq!(error["error"]["reason"], "NO_SERVER");
    assert!(error["error"]["message"].as_str().unwrap().contains("127.0.0.1:1"));
}

#[test]
fn help_says_what_exists_and_nothing_else() {
    let help = String::from_utf8(pando(&["--help"]).stdout).unwrap();
    for command in
        ["demo", "serve", "create", "ingest", "compact", "query", "recall", "bench", "verify", "gc"]
    {
        assert!(help.contains(command), "{command}");
    }
    for later in ["tag", "fork", "export"] {
        assert!(!help.lines().any(|line| line.trim_start().starts_with(later)), "{later} is not built yet");
    }
    let serve = String::from_utf8(pando(&["serve", "--help"]).stdout).unwrap();
    assert!(serve.contains("--data-dir") && !serve.contains("--etcd") && !serve.contains("--store"));
}
