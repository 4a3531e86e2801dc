//! Clients in Python: pyarrow's Flight and generated gRPC stubs. Needs `PANDO_PYTHON`, a Python with pyarrow, numpy,
//! grpcio and grpcio-tools, which scripts/test installs.

use std::path::Path;
use std::process::Command;

use pando_tests::Fixture;

fn run(script: &str) {
    let Some(python) = std::env::var_os("PANDO_PYTHON") else {
        println!("skipped: PANDO_PYTHON is not set (scripts/test sets it)");
        return;
    };
    let f = Fixture::start();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(python)
        .arg(here.join("python").join(script))
        .arg(f.server.url().trim_start_matches("http://"))
        .arg(here.join("../proto"))
        .arg(f.dir.path())
        .output()
        .expect("python runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{script}\n{text}\n{}", String::from_utf8_lossy(&output.stderr));
    println!("{text}");
    f.server.compact("python");
    f.server.verify("python");
}

#[test]
fn pyarrow_flight() {
    run("flight_client.py");
}

#[test]
fn generated_stubs() {
    run("grpc_client.py");
}

#[test]
fn the_demo_data_is_what_its_readme_says() {
    let Some(python) = std::env::var_os("PANDO_PYTHON") else {
        println!("skipped: PANDO_PYTHON is not set (scripts/test sets it)");
        return;
    };
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(python)
        .arg(here.join("python/demo_data.py"))
        .arg(here.join("../data/demo"))
        .output()
        .expect("python runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
