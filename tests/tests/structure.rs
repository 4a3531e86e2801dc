//! Which crate may know which: DESIGN.md section 10, read from the manifests.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

/// Normal and build dependencies of every workspace crate, by package name.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let mut all = BTreeMap::new();
    for group in ["crates", "services"] {
        for entry in std::fs::read_dir(root().join(group)).expect("a folder") {
            let Ok(text) = std::fs::read_to_string(entry.expect("an entry").path().join("Cargo.toml")) else {
                continue;
            };
            let mut section = "";
            let mut name = String::new();
            let mut deps = BTreeSet::new();
            for line in text.lines().map(str::trim) {
                if line.starts_with('[') {
                    section = line;
                } else if section == "[package]" && line.starts_with("name") {
                    name = line.split('"').nth(1).expect("a quoted name").to_owned();
                } else if (section.ends_with("dependencies]") && section != "[dev-dependencies]")
                    && let Some(dep) =
                        line.split(['.', '=', ' ']).next().filter(|d| !d.is_empty() && !d.starts_with('#'))
                {
                    deps.insert(dep.to_owned());
                }
            }
            all.insert(name, deps);
        }
    }
    all
}

/// Everything that `name` reaches inside the workspace.
fn reached(all: &BTreeMap<String, BTreeSet<String>>, name: &str) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let mut todo = vec![name.to_owned()];
    while let Some(next) = todo.pop() {
        for dep in all.get(&next).into_iter().flatten().filter(|d| all.contains_key(*d)) {
            if seen.insert(dep.clone()) {
                todo.push(dep.clone());
            }
        }
    }
    seen
}

/// The workspace crates that each may reach. A crate that is not listed here needs a decision.
const MAY_REACH: &[(&str, &[&str])] = &[
    ("pando-kernels", &[]),
    ("pando-tree", &["pando-kernels"]),
    ("pando-format", &["pando-kernels"]),
    ("pando-store", &[]),
    // For its clock only.
    ("pando-coordination", &["pando-store"]),
    ("pando-engine", &["pando-kernels", "pando-tree", "pando-format", "pando-store", "pando-coordination"]),
    ("pando-proto", &[]),
    ("pando-client", &["pando-proto"]),
    ("pando-telemetry", &[]),
    ("pando-testkit", &["pando-store"]),
];

#[test]
fn dependencies_point_one_way() {
    let all = dependencies();
    for (name, may) in MAY_REACH {
        let may: BTreeSet<String> = may.iter().map(|s| s.to_string()).collect();
        let more: Vec<_> = reached(&all, name).difference(&may).cloned().collect();
        assert!(more.is_empty(), "{name} reaches {more:?}");
    }
    for (name, deps) in &all {
        let service = ["pando", "pando-gateway", "pando-query", "pando-compactor"].contains(&name.as_str());
        assert!(service || MAY_REACH.iter().any(|(n, _)| n == name), "{name} has no place in the layout");
        assert!(!deps.contains("pando-testkit"), "{name} links the test kit");
        // No service knows another, but for the binary, which starts them.
        if service && name != "pando" {
            let other = deps
                .iter()
                .find(|d| ["pando", "pando-gateway", "pando-query", "pando-compactor"].contains(&d.as_str()));
            assert_eq!(other, None, "{name}");
        }
    }
}

#[test]
fn pure_crates_have_no_io_and_no_async() {
    let all = dependencies();
    let forbidden = [
        "tokio",
        "tokio-util",
        "tokio-stream",
        "futures",
        "async-trait",
        "object_store",
        "tonic",
        "rand",
        "tracing",
        "metrics",
    ];
    for name in ["pando-kernels", "pando-tree", "pando-format"] {
        for crate_name in std::iter::once(name.to_owned()).chain(reached(&all, name)) {
            let bad: Vec<_> = all[&crate_name].iter().filter(|d| forbidden.contains(&d.as_str())).collect();
            assert!(bad.is_empty(), "{name} through {crate_name} depends on {bad:?}");
        }
    }
}

#[test]
fn wire_messages_and_stored_bytes_are_apart() {
    let all = dependencies();
    assert!(!reached(&all, "pando-engine").contains("pando-proto"), "the engine knows wire messages");
    assert!(!reached(&all, "pando-client").contains("pando-format"), "the client knows stored bytes");
}

/// Sources of the pure crates: no clock, file, socket or thread of their own, outside of tests and benches.
#[test]
fn pure_crates_do_not_name_clocks_files_or_sockets() {
    let words =
        ["std::fs", "std::net", "std::time", "SystemTime", "Instant::now", "std::thread::spawn", "println!"];
    let mut looked_at = 0;
    for name in ["pando-kernels", "pando-tree", "pando-format"] {
        let mut todo = vec![root().join("crates").join(name).join("src")];
        while let Some(path) = todo.pop() {
            if path.is_dir() {
                todo.extend(std::fs::read_dir(&path).expect("a folder").map(|e| e.expect("an entry").path()));
                continue;
            }
            let file = path.to_string_lossy().into_owned();
            if !file.ends_with(".rs") || file.contains("test") {
                continue;
            }
            looked_at += 1;
            let text = std::fs::read_to_string(&path).expect("a source");
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            for line in code.lines().filter(|l| !l.trim_start().starts_with("//")) {
                let word = words.iter().find(|w| line.contains(**w));
                assert_eq!(word, None, "{file}: {line}");
            }
        }
    }
    assert!(looked_at > 3);
}

/// Every crate has a line that says what it is, and the same licence.
#[test]
fn manifests_are_complete() {
    for group in ["crates", "services"] {
        for entry in std::fs::read_dir(root().join(group)).expect("a folder") {
            let path = entry.expect("an entry").path().join("Cargo.toml");
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            for line in ["description = ", "license.workspace = true", "[lints]"] {
                assert!(text.contains(line), "{}: {line} is missing", path.display());
            }
        }
    }
}

/// What `scripts/mutations` breaks is still there to be broken.
#[test]
fn mutations_have_their_places() {
    let script = root().join("scripts/mutations");
    let run = std::process::Command::new("python3").arg(script).arg("--list").output().expect("python3 runs");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}
