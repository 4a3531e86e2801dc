//! Bytes of every kind of object are frozen in `golden/`. A difference is a change of the format: it needs a
//! new version number, or, while index blocks have algorithm version 0, a word in `docs/format/`.
//!
//! To write the files anew: `cargo test -p pando-format --test format write_golden_files -- --ignored`.

use crate::common;

use std::path::PathBuf;

fn path(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "golden", &format!("{name}.bin")].iter().collect()
}

/// Not a check: replaces the golden files by what the code writes now.
#[test]
#[ignore = "writes files"]
fn write_golden_files() {
    for sample in common::samples() {
        std::fs::write(path(sample.name), &sample.bytes).expect("the golden directory can be written");
    }
}

#[test]
fn bytes_are_the_golden_ones() {
    let mut wrong = Vec::new();
    for sample in common::samples() {
        let golden = std::fs::read(path(sample.name)).unwrap_or_default();
        if golden != sample.bytes {
            let at = golden.iter().zip(&sample.bytes).position(|(a, b)| a != b);
            let (old, new) = (golden.len(), sample.bytes.len());
            wrong.push(format!("{}: {old} bytes before, {new} now, first difference {at:?}", sample.name));
        }
    }
    assert!(wrong.is_empty(), "not the golden bytes:\n{}", wrong.join("\n"));
}

#[test]
fn golden_files_decode_and_encode_to_themselves() {
    for sample in common::samples() {
        let golden = std::fs::read(path(sample.name)).expect("a golden file");
        match (sample.decode)(&golden) {
            Ok(Some(again)) => assert!(again == golden, "{} encodes to other bytes", sample.name),
            Ok(None) => {}
            Err(e) => panic!("{}: {e}", sample.name),
        }
    }
}

#[test]
fn no_golden_file_is_left_over() {
    let names: Vec<String> = common::samples().iter().map(|s| format!("{}.bin", s.name)).collect();
    let dir = path("x").parent().expect("a directory").to_owned();
    for file in std::fs::read_dir(dir).expect("the golden directory") {
        let name = file.expect("a file").file_name().to_string_lossy().into_owned();
        assert!(names.contains(&name), "{name} belongs to no object");
    }
}
