//! What is printed: results to standard output, news and errors to standard error.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use pando_client::proto;
use serde_json::{Map, Value, json};

use crate::cli::Output;

/// Prints results as asked for.
#[derive(Clone, Copy, Debug)]
pub struct Printer(pub Output);

impl Printer {
    /// One result: a line of JSON, or text.
    pub fn result(self, json: impl FnOnce() -> Value, text: impl FnOnce() -> String) {
        let mut out = std::io::stdout().lock();
        let line = match self.0 {
            Output::Json => json().to_string(),
            Output::Text => text(),
        };
        // A reader that has seen enough (`| head`) is no failure.
        let _ = writeln!(out, "{}", line.trim_end());
    }

    /// An error.
    pub fn error(self, error: &anyhow::Error) {
        let call = error.downcast_ref::<pando_client::Error>();
        match self.0 {
            Output::Json => {
                let mut json = Map::new();
                json.insert("message".into(), format!("{error:#}").into());
                if let Some(call) = call {
                    json.insert("code".into(), format!("{:?}", call.code).into());
                    json.insert("reason".into(), call.reason.clone().into());
                    json.insert("record".into(), call.record.into());
                }
                eprintln!("{}", json!({ "error": json }));
            }
            Output::Text => eprintln!("error: {error:#}"),
        }
    }
}

/// An id as JSON.
pub fn id(id: Option<&proto::Id>) -> Value {
    match id.and_then(|id| id.kind.as_ref()) {
        Some(proto::id::Kind::Number(number)) => (*number).into(),
        Some(proto::id::Kind::Text(text)) => text.as_str().into(),
        None => Value::Null,
    }
}

/// An attribute as JSON: bytes as hexadecimal digits, timestamps as microseconds.
pub fn value(value: &proto::Value) -> Value {
    use proto::value::Kind;
    match value.kind.as_ref() {
        Some(Kind::Bool(v)) => (*v).into(),
        Some(Kind::Int64(v) | Kind::TimestampMicros(v)) => (*v).into(),
        Some(Kind::Float64(v)) => (*v).into(),
        Some(Kind::String(v)) => v.as_str().into(),
        Some(Kind::Bytes(v)) => v.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into(),
        Some(Kind::BoolList(v)) => v.values.clone().into(),
        Some(Kind::Int64List(v)) => v.values.clone().into(),
        Some(Kind::Float64List(v)) => v.values.clone().into(),
        Some(Kind::StringList(v)) => v.values.clone().into(),
        None => Value::Null,
    }
}

/// Attributes as a JSON object.
pub fn attributes(record: &proto::Record) -> Value {
    Value::Object(record.attributes.iter().map(|(name, v)| (name.clone(), value(v))).collect())
}

/// A root as JSON: null when there is none yet.
pub fn root(root: &str) -> Value {
    if root.is_empty() { Value::Null } else { root.into() }
}

/// 1234567 as "1,234,567".
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// How long work goes on without a terminal before the next line about it.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Progress of long work: a bar on a terminal, now and then a line elsewhere.
pub struct Bar {
    bar: ProgressBar,
    what: String,
    unit: &'static str,
    start: Instant,
    last_line: Instant,
    terminal: bool,
}

impl Bar {
    /// `unit` is what is counted: "rows". `total` is 0 where it is not known.
    pub fn new(what: &str, unit: &'static str, total: u64) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = match (terminal, total) {
            (false, _) => ProgressBar::hidden(),
            (true, 0) => ProgressBar::new_spinner(),
            (true, total) => ProgressBar::new(total),
        };
        let template = if total == 0 {
            "{msg} {human_pos} ({per_sec}) {elapsed}"
        } else {
            "{msg} {wide_bar} {human_pos}/{human_len} ({per_sec}, {eta} left)"
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(what.to_owned());
        Self { bar, what: what.to_owned(), unit, start: Instant::now(), last_line: Instant::now(), terminal }
    }

    /// So much is done.
    pub fn set(&mut self, done: u64, total: u64) {
        if total > 0 {
            self.bar.set_length(total);
        }
        self.bar.set_position(done);
        if !self.terminal && self.last_line.elapsed() >= LINE_EVERY {
            self.last_line = Instant::now();
            let of = if total > 0 { format!(" of {}", count(total)) } else { String::new() };
            let rate = done as f64 / self.start.elapsed().as_secs_f64();
            eprintln!("{}: {}{of} {} ({}/s)", self.what, count(done), self.unit, count(rate as u64));
        }
    }

    /// The server's news.
    pub fn news(&mut self, progress: &proto::Progress) {
        if progress.stage != self.what {
            self.what.clone_from(&progress.stage);
            self.bar.set_message(progress.stage.clone());
        }
        self.set(progress.done, progress.total);
    }

    /// Takes the bar away.
    pub fn finish(self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1234567, "1,234,567")] {
            assert_eq!(count(number), text);
        }
    }

    #[test]
    fn values_keep_their_types_in_json() {
        use proto::value::Kind;
        let json = |kind: Kind| value(&kind.into()).to_string();
        assert_eq!(json(Kind::Int64(-7)), "-7");
        assert_eq!(json(Kind::Float64(2.0)), "2.0");
        assert_eq!(json(Kind::String("a\0🌲".into())), "\"a\\u0000🌲\"");
        assert_eq!(json(Kind::Bytes(vec![0, 255])), "\"00ff\"");
        assert_eq!(json(Kind::StringList(proto::StringList { values: vec!["x".into()] })), "[\"x\"]");
        assert_eq!(id(Some(&u64::MAX.into())).to_string(), "18446744073709551615");
        assert_eq!(id(Some(&"7".into())).to_string(), "\"7\"");
        assert_eq!(root(""), Value::Null);
    }
}
