//! The JSON of every command has the fields that DESIGN.md section 9 promises.

use pando_tests::Fixture;
use pando_tests::cli::pando;
use pando_tests::data::Mixture;
use pando_tests::files::write_npy;
use serde_json::Value;

#[track_caller]
fn has(value: &Value, fields: &[&str]) {
    for field in fields {
        assert!(value.get(field).is_some(), "no {field} in {value}");
    }
}

#[test]
fn every_command_prints_the_promised_json() {
    let f = Fixture::start();
    let s = &f.server;
    let mixture = Mixture::new(1, 32, 20);
    let base = f.path("base.npy");
    let queries = f.path("queries.npy");
    write_npy(&base, &mixture.rows(1, 3000));
    write_npy(&queries, &mixture.rows(2, 5));
    let (base, queries) = (base.to_str().expect("UTF-8"), queries.to_str().expect("UTF-8"));

    s.create("things", 32, "cosine");
    let before = s.json(&["describe", "things"]);
    let fields = [
        "name",
        "dimension",
        "metric",
        "records",
        "root",
        "generation",
        "sequence",
        "tail_records",
        "leaves",
        "levels",
        "index_bytes",
        "segment_bytes",
    ];
    has(&before, &fields);
    assert_eq!(before["root"], Value::Null, "before the first root `root` is null: {before}");
    assert_eq!(before["generation"], 0);
    assert_eq!(before["records"], 0);

    let ingest = s.json(&["ingest", "things", base]);
    has(&ingest, &["rows", "seconds", "sequence"]);
    assert_eq!(ingest["rows"], 3000);
    assert_eq!(s.json(&["count", "things"]), serde_json::json!({"count": 3000}));

    let compact = s.json(&["compact", "things", "--wait"]);
    has(&compact, &["root", "generation", "sequence", "seconds"]);
    assert_eq!(compact["generation"], 1);
    assert_eq!(compact["sequence"], ingest["sequence"]);
    let root = compact["root"].as_str().expect("a root");
    assert!(root.len() == 64 && root.bytes().all(|b| b.is_ascii_hexdigit()), "{root}");

    let after = s.json(&["describe", "things"]);
    has(&after, &fields);
    assert_eq!(after["name"], "things");
    assert_eq!(after["dimension"], 32);
    assert_eq!(after["metric"], "cosine");
    assert_eq!(after["records"], 3000);
    assert_eq!(after["root"], root);
    assert_eq!(after["tail_records"], 0);
    assert!(after["leaves"].as_u64().expect("leaves") >= 1);
    assert!(after["segment_bytes"].as_u64().expect("bytes") > 3000 * 32 * 4);

    let answers = s.lines(&["query", "things", "--vectors", queries, "--top-k", "7"]);
    assert_eq!(answers.len(), 5, "one object for each query vector");
    for answer in &answers {
        has(
            answer,
            &[
                "matches",
                "root",
                "sequence",
                "complete",
                "method",
                "leaves_scanned",
                "codes_scanned",
                "vectors_reranked",
                "latency_us",
            ],
        );
        let matches = answer["matches"].as_array().expect("matches");
        assert_eq!(matches.len(), 7);
        has(&matches[0], &["id", "distance", "attributes"]);
        assert!(matches[0]["id"].is_u64(), "numeric ids are JSON numbers: {answer}");
        assert_eq!(answer["root"], root);
        assert_eq!(answer["complete"], true);
    }
    let exact = s.lines(&["query", "things", "--vectors", queries, "--top-k", "7", "--exact"]);
    assert_ne!(exact[0]["method"], answers[0]["method"]);
    // `at` the root, which holds everything.
    let at = s.lines(&["query", "things", "--vectors", queries, "--top-k", "7", "--exact", "--at", root]);
    assert_eq!(at[0]["matches"], exact[0]["matches"]);

    let recall = s.json(&["recall", "things", "--vectors", queries, "--top-k", "10"]);
    has(&recall, &["queries", "top_k", "mean", "p5", "min"]);
    assert_eq!(recall["queries"], 5);

    let bench = s.json(&[
        "bench",
        "things",
        "--vectors",
        queries,
        "--top-k",
        "10",
        "--concurrency",
        "2",
        "--seconds",
        "1",
    ]);
    has(&bench, &["queries", "qps", "recall", "p50_us", "p90_us", "p99_us", "p999_us", "errors"]);
    assert_eq!(bench["errors"], 0);
    assert!(bench["p50_us"].as_f64() <= bench["p99_us"].as_f64());

    let verify = s.verify("things");
    has(&verify, &["ok", "root", "records", "blocks", "problems"]);
    assert_eq!(verify["root"], root);
    assert_eq!(verify["records"], 3000);

    // One root, younger than the retention: nothing is garbage.
    for dry in [&["gc", "things", "--dry-run"][..], &["gc", "things"]] {
        let gc = s.json(dry);
        has(&gc, &["dry_run", "generation", "log_floor", "recent_roots", "held_roots", "deleted_objects"]);
        assert_eq!((&gc["deleted_bytes"], &gc["recent_roots"]), (&0.into(), &1.into()), "{gc}");
        assert!(gc["kept_bytes"].as_u64() > Some(3000 * 4), "{gc}");
        let kinds: Vec<&str> =
            gc["kinds"].as_array().unwrap().iter().filter_map(|k| k["kind"].as_str()).collect();
        assert!(["log entry", "pack", "segment", "root"].iter().all(|kind| kinds.contains(kind)), "{gc}");
    }

    let found = s.lines(&["fetch", "things", "17", "999999"]);
    assert!(!found.is_empty());
    s.lines(&["delete", "things", "--ids", "17"]);
    assert_eq!(s.count("things"), 2999);

    assert!(!s.lines(&["collections"]).is_empty());
    let roots = s.run(&["roots", "things"]);
    assert!(roots.code == 0 && roots.stdout.contains(root), "{}", roots.stdout);
}

#[test]
fn help_names_what_exists_and_nothing_else() {
    let help = pando(&["--help"]);
    assert_eq!(help.code, 0, "{}", help.stderr);
    for command in [
        "demo",
        "serve",
        "create",
        "ingest",
        "compact",
        "query",
        "recall",
        "bench",
        "fetch",
        "delete",
        "count",
        "collections",
        "describe",
        "roots",
        "verify",
        "gc",
    ] {
        assert!(help.stdout.contains(command), "{command} is not in --help:\n{}", help.stdout);
        let own = pando(&[command, "--help"]);
        assert_eq!(own.code, 0, "pando {command} --help: {}", own.stderr);
    }
    // These come with their issues.
    let commands: Vec<&str> = help.stdout.lines().filter_map(|l| l.split_whitespace().next()).collect();
    for absent in ["tag", "fork", "export"] {
        assert!(!commands.contains(&absent), "{absent} is in --help");
    }
    assert_eq!(pando(&["--version"]).code, 0);
    assert_ne!(pando(&["no-such-command"]).code, 0);
}

#[test]
fn without_a_server_a_command_says_so() {
    let run = pando(&["count", "things", "--server", "http://127.0.0.1:9"]);
    assert_ne!(run.code, 0);
    assert!(run.stderr.contains("127.0.0.1:9"), "the error names the address: {}", run.stderr);
    assert!(!run.stderr.contains("panicked"), "{}", run.stderr);
}

#[test]
fn a_demo_on_a_fresh_machine_shows_sentences() {
    let dir = tempfile::tempdir().expect("a folder");
    let run = std::process::Command::new(pando_tests::server::binary())
        .args(["demo", "--exit"])
        .current_dir(dir.path())
        .env("TMPDIR", dir.path())
        .env("HOME", dir.path())
        .stdin(std::process::Stdio::null())
        .output()
        .expect("pando runs");
    let out = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{out}\n{}", String::from_utf8_lossy(&run.stderr));
    assert!(out.contains("12,288") || out.contains("12288"), "it says how many sentences: {out}");
    assert!(out.to_lowercase().contains("recall"), "it prints recall: {out}");
    // The first query's three nearest, as brute force finds them.
    assert!(out.contains("a spicy Spanish pork sausage") && out.contains("Portuguese pork sausage"), "{out}");
}
