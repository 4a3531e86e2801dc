//! Data sets: base rows, queries and true neighbours, and the quality of answers.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use pando_kernels::Metric;
use serde_json::{Map, Value, json};

use crate::arguments::Common;
use crate::npy::{self, Matrix};
use crate::report::round;
use crate::truth;

/// Neighbours that truths of a smoke test have.
const TRUTH_K: usize = 100;

/// Queries with their true neighbours.
#[derive(Debug)]
pub struct Queries {
    /// Original vectors.
    pub vectors: Matrix<f32>,
    /// Row numbers, nearest first; -1 fills short rows.
    pub truth: Matrix<i64>,
}

/// The set's name in lines: the folder's, with the rows of a smoke test and the other set of queries.
pub fn name(args: &Common) -> String {
    let folder = args.data.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let limit = args.limit.map(|n| format!("[{n}]")).unwrap_or_default();
    let set = args.query_set.as_ref().map(|set| format!(":{set}")).unwrap_or_default();
    format!("{folder}{limit}{set}")
}

/// The index of these arguments.
pub fn index(args: &Common) -> PathBuf {
    let folder = args.data.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let limit = args.limit.map(|n| format!("-{n}")).unwrap_or_default();
    args.index.clone().unwrap_or_else(|| args.work.join(format!("{folder}{limit}-{}-pando", args.metric)))
}

/// The base rows.
pub fn base(args: &Common) -> Result<Matrix<f32>> {
    let mut base = npy::vectors(&find(&args.data, &["base"])?)?;
    base.truncate(args.limit.unwrap_or(usize::MAX).min(base.rows()));
    Ok(base)
}

/// The queries, and their truth unless they are all that is wanted.
pub fn queries(args: &Common) -> Result<Queries> {
    let set = args.query_set.as_ref().map(|set| format!("_{set}")).unwrap_or_default();
    let path = match &args.queries_file {
        Some(path) => path.clone(),
        None => find(&args.data, &[&format!("queries{set}"), &format!("queries{set}_in")])?,
    };
    let mut vectors = npy::vectors(&path)?;
    vectors.truncate(args.queries.min(vectors.rows()));
    let truth = match (&args.truth_file, args.limit) {
        (None, Some(_)) => {
            let near = truth::nearest(args.metric, &base(args)?, &[], &vectors, TRUTH_K);
            Matrix { columns: TRUTH_K, values: near.into_iter().flatten().collect() }
        }
        (Some(path), _) => npy::ids(path)?,
        (None, None) => {
            let metric = if args.metric == Metric::Dot { "ip".to_owned() } else { args.metric.to_string() };
            npy::ids(&find(&args.data, &[&format!("gt{set}_{metric}_ids"), &format!("gt{set}_in_ids")])?)?
        }
    };
    ensure!(truth.rows() >= vectors.rows(), "{} has queries without true neighbours", path.display());
    Ok(Queries { vectors, truth })
}

fn find(folder: &Path, names: &[&str]) -> Result<PathBuf> {
    let all = names.iter().flat_map(|name| [format!("{name}.npy"), format!("{name}_f16.npy")]);
    let mut all = all.map(|name| folder.join(name));
    all.find(|path| path.exists())
        .with_context(|| format!("{} has no {}.npy", folder.display(), names.join(" or ")))
}

/// Recall and faults of answers, for a line.
pub fn quality(answers: &[Vec<u64>], truth: &Matrix<i64>, k: usize) -> Map<String, Value> {
    let (mut hits, mut wanted, mut short, mut dup, mut over) = (0, 0, 0, 0, 0);
    let mut each = Vec::with_capacity(answers.len());
    for (answer, at) in answers.iter().zip(0..) {
        let row = truth.row(at % truth.rows());
        let want: HashSet<u64> = row.iter().take(k).filter_map(|id| u64::try_from(*id).ok()).collect();
        let have: HashSet<u64> = answer.iter().copied().collect();
        let hit = want.intersection(&have).count();
        hits += hit;
        wanted += want.len();
        each.push(if want.is_empty() { 1.0 } else { hit as f64 / want.len() as f64 });
        short += usize::from(answer.len() < want.len());
        dup += usize::from(have.len() != answer.len());
        over += usize::from(answer.len() > k);
    }
    each.sort_by(f64::total_cmp);
    let at = |n: usize| each.get(n).copied().unwrap_or(1.0);
    let recall = round(hits as f64 / f64::max(1.0, wanted as f64), 5);
    let row = json!({
        "recall": recall, "recall_p5": at(each.len() / 20), "recall_min": at(0), "short": short, "dup": dup, "over": over,
    });
    let Value::Object(row) = row else { unreachable!("a literal object") };
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quality_counts_hits_and_faults() {
        let truth = Matrix { columns: 3, values: vec![1, 2, 3, 4, 5, -1] };
        let row = quality(&[vec![1, 9], vec![4, 4]], &truth, 2);
        assert_eq!(row["recall"], json!(0.5));
        assert_eq!((&row["short"], &row["dup"], &row["over"]), (&json!(0), &json!(1), &json!(0)));
        let row = quality(&[vec![1, 2], vec![4]], &truth, 3);
        assert_eq!(row["recall"], json!(0.6));
        assert_eq!((&row["short"], &row["recall_min"]), (&json!(2), &json!(0.5)));
    }
}
