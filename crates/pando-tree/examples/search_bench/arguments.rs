//! The command line.

use std::path::PathBuf;

use pando_kernels::Metric;
use pando_tree::search::{DEFAULT_EPS0, Effort};

/// What is measured.
pub struct Arguments {
    pub base: PathBuf,
    /// Pairs of queries and ground truth.
    pub queries: Vec<(PathBuf, PathBuf)>,
    pub metric: Metric,
    pub k: Vec<usize>,
    pub targets: Vec<f32>,
    pub efforts: Vec<Effort>,
    pub limit: usize,
    pub copies: u8,
    pub refine: bool,
    pub cache: Option<PathBuf>,
    pub seconds: f64,
    pub eps0: f32,
}

impl Arguments {
    pub fn parse() -> Result<Self, String> {
        let mut base = None;
        let (mut queries, mut truths) = (Vec::new(), Vec::new());
        let mut out = Arguments {
            base: PathBuf::new(),
            queries: Vec::new(),
            metric: Metric::Cosine,
            k: vec![10, 100],
            targets: vec![0.9, 0.95, 0.97, 0.99],
            efforts: Vec::new(),
            limit: usize::MAX,
            copies: 2,
            refine: true,
            cache: None,
            seconds: 1.0,
            eps0: DEFAULT_EPS0,
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or_else(|| format!("{name} wants a value"))?;
            match name.as_str() {
                "--base" => base = Some(PathBuf::from(value)),
                "--queries" => queries.push(PathBuf::from(value)),
                "--truth" => truths.push(PathBuf::from(value)),
                "--metric" => out.metric = value.parse().map_err(|e| format!("{e}"))?,
                "--k" => out.k = list(&value)?,
                "--targets" => out.targets = list(&value)?,
                "--effort" => out.efforts.push(effort(&value)?),
                "--limit" => out.limit = number(&value)?,
                "--copies" => out.copies = number(&value)?,
                "--refine" => out.refine = value == "on",
                "--cache" => out.cache = Some(PathBuf::from(value)),
                "--eps0" => out.eps0 = number(&value)?,
                "--seconds" => out.seconds = number(&value)?,
                _ => return Err(format!("unknown argument {name}")),
            }
        }
        out.base = base.ok_or("--base is missing")?;
        if queries.len() != truths.len() {
            return Err("each --queries wants a --truth".into());
        }
        out.queries = queries.into_iter().zip(truths).collect();
        Ok(out)
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("not a number: {text}"))
}

fn list<T: std::str::FromStr>(text: &str) -> Result<Vec<T>, String> {
    text.split(',').filter(|t| !t.is_empty()).map(number).collect()
}

fn effort(text: &str) -> Result<Effort, String> {
    match text.split_once(':') {
        Some(("leaves", n)) => Ok(Effort::Leaves(number(n)?)),
        Some(("margin", m)) => Ok(Effort::Margin(number(m)?)),
        None if text == "full" => Ok(Effort::Full),
        _ => Err(format!("not an effort: {text}")),
    }
}
