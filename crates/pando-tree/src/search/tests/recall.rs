//! Recall rises with effort; the searcher may be reused; kernel sets agree.

use pando_kernels::{Kernels, Simd};

use super::*;
use crate::search::*;

/// Recall of each query, ascending, and the counters summed.
fn run(index: &Index, queries: &[Vec<f32>], k: usize, effort: Effort) -> (Vec<f64>, Counters) {
    let mut searcher = Searcher::new();
    let mut total = Counters::default();
    let mut recalls = Vec::new();
    for query in queries {
        let params = SearchParams { k, effort, ..Default::default() };
        let found = index.search(&mut searcher, query, &params, &|_| false);
        assert_eq!(found.len(), k.min(index.vectors.len()));
        recalls.push(recall(&found, &index.truth(query, k, &|_| false)));
        let c = searcher.counters();
        total.leaves += c.leaves;
        total.codes += c.codes;
        total.refined += c.refined;
        total.reranked += c.reranked;
    }
    recalls.sort_unstable_by(f64::total_cmp);
    (recalls, total)
}

fn mean(recalls: &[f64]) -> f64 {
    recalls.iter().sum::<f64>() / recalls.len() as f64
}

#[test]
fn recall_rises_with_the_number_of_leaves() {
    for metric in METRICS {
        for (copies, refine) in [(1, true), (2, true), (2, false)] {
            let (index, queries) = sample(8000, 48, 100, Shape { copies, refine, ..shape(metric) });
            let mut last = 0.0;
            for leaves in [1, 4, 16, 64, 1000] {
                let (recalls, total) = run(&index, &queries, 10, Effort::Leaves(leaves));
                let recall = mean(&recalls);
                assert!(recall >= last - 0.01, "{metric} {copies} {refine} {leaves}: {recall} after {last}");
                last = recall;
                if leaves == 1000 {
                    // All leaves: what is missing was lost by bounds of 1.9 standard errors.
                    assert!(recall > 0.99, "{metric} {copies} {refine}: {recall}");
                    assert!(recalls[5] >= 0.9, "{metric}: p5 {}", recalls[5]);
                    assert!(!refine || total.reranked < 100 * 25, "{metric}: {total:?}");
                    assert_eq!(refine, total.refined > 0);
                    assert!(total.refined < total.codes / 10, "{metric}: {total:?}");
                }
            }
        }
    }
}

#[test]
fn recall_rises_with_the_margin() {
    for metric in METRICS {
        let (index, queries) = sample(8000, 48, 100, shape(metric));
        let (mut last, mut codes) = (0.0, 0);
        for margin in [f32::NEG_INFINITY, f32::INFINITY] {
            let (recalls, total) = run(&index, &queries, 10, Effort::Margin(margin));
            assert!(mean(&recalls) >= last && total.codes > codes);
            (last, codes) = (mean(&recalls), total.codes);
        }
        assert!(last > 0.995, "{metric}: {last}");
    }
}

#[test]
fn kernel_sets_give_the_same_answers_and_the_same_work() {
    for metric in METRICS {
        let mut rng = Rng(5);
        let data = mixture(&mut rng, 3000, 70, 20, 0.6);
        let mut seen: Option<Vec<(Vec<u64>, Counters)>> = None;
        for simd in Simd::ALL {
            let Ok(kernels) = Kernels::new(simd) else { continue };
            let vectors = Vectors { dim: 70, data: data.clone() };
            let index = Index::build(kernels, vectors, shape(metric));
            let mut searcher = Searcher::new();
            let mut answers = Vec::new();
            for place in 0..30 {
                let query: Vec<f32> = data[place * 70..(place + 1) * 70].iter().map(|x| x + 0.1).collect();
                for effort in [Effort::Leaves(9), Effort::Margin(0.5), Effort::Full] {
                    let params = SearchParams { effort, ..Default::default() };
                    let found = index.search(&mut searcher, &query, &params, &|_| false);
                    answers.push((found, searcher.counters()));
                }
            }
            match &seen {
                None => seen = Some(answers),
                Some(first) => assert_eq!(first, &answers, "{metric} {simd}"),
            }
        }
    }
}

#[test]
fn a_used_searcher_answers_like_a_new_one() {
    let (index, queries) = sample(2000, 32, 40, shape(Metric::L2));
    let mut used = Searcher::new();
    for (i, query) in queries.iter().enumerate() {
        let effort = [Effort::Leaves(5), Effort::Full, Effort::Margin(1.0)][i % 3];
        let params = SearchParams { k: 1 + 13 * (i % 5), effort, ..Default::default() };
        let mut new = Searcher::new();
        let answers =
            [&mut used, &mut new].map(|s| (index.search(s, query, &params, &|_| false), s.counters()));
        assert_eq!(answers[0], answers[1]);
    }
}
