//! JSON lines, one a measurement.

use std::fs::OpenOptions;
use std::io::Write;
use std::time::SystemTime;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use crate::arguments::Common;
use crate::machine;

/// Appends a line: date, engine and load, then `row`.
pub fn emit(args: &Common, row: Value) -> Result<()> {
    let mut line = Map::new();
    line.insert("date".into(), json!(humantime::format_rfc3339_seconds(SystemTime::now()).to_string()));
    line.insert("engine".into(), json!("pando"));
    line.insert("load1".into(), json!(machine::load1()));
    if let Some(round) = args.round {
        line.insert("round".into(), json!(round));
    }
    if let Value::Object(row) = row {
        line.extend(row);
    }
    let text = Value::Object(line).to_string();
    let mut file = OpenOptions::new().create(true).append(true).open(&args.out);
    let file =
        file.as_mut().map_err(|e| anyhow::anyhow!("{e}")).with_context(|| args.out.display().to_string())?;
    writeln!(file, "{text}")?;
    if !args.quiet {
        println!("{text}");
    }
    Ok(())
}

/// `x` with so many decimals.
pub fn round(x: f64, decimals: i32) -> f64 {
    let scale = 10f64.powi(decimals);
    (x * scale).round() / scale
}
