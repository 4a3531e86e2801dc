//! Compiles proto/ with protox (a protoc in Rust): nothing is asked of the system.

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let proto = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?).join("../../proto");
    let files =
        ["types", "collection", "record", "query", "admin"].map(|name| format!("pando/v1/{name}.proto"));
    println!("cargo:rerun-if-changed={}", proto.display());

    let mut compiler = protox::Compiler::new([&proto])?;
    compiler.include_source_info(true).include_imports(true).open_files(&files)?;

    // For reflection.
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("pando_descriptor.bin"), compiler.encode_file_descriptor_set())?;

    tonic_prost_build::configure().btree_map(".").compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}
