//! Short ways to build and show the messages that are everywhere.

use std::fmt;

use crate::v1;

impl From<u64> for v1::Id {
    fn from(number: u64) -> Self {
        Self { kind: Some(v1::id::Kind::Number(number)) }
    }
}

impl From<String> for v1::Id {
    fn from(text: String) -> Self {
        Self { kind: Some(v1::id::Kind::Text(text)) }
    }
}

impl From<&str> for v1::Id {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl fmt::Display for v1::Id {
    /// Numbers bare, texts quoted and escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Some(v1::id::Kind::Number(number)) => number.fmt(f),
            Some(v1::id::Kind::Text(text)) => write!(f, "{text:?}"),
            None => f.write_str("(no id)"),
        }
    }
}

impl From<Vec<f32>> for v1::Vector {
    fn from(values: Vec<f32>) -> Self {
        Self { values }
    }
}

impl From<v1::value::Kind> for v1::Value {
    fn from(kind: v1::value::Kind) -> Self {
        Self { kind: Some(kind) }
    }
}

impl From<v1::consistency::Level> for v1::Consistency {
    fn from(level: v1::consistency::Level) -> Self {
        Self { level: Some(level) }
    }
}

impl From<v1::effort::Kind> for v1::Effort {
    fn from(kind: v1::effort::Kind) -> Self {
        Self { kind: Some(kind) }
    }
}
