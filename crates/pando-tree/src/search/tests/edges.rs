//! Few rows, hidden rows, extra rows, extreme values.

use std::sync::Arc;

use pando_kernels::Kernels;

use super::fixture::{leaf_part, row_number};
use super::*;
use crate::search::*;
use crate::{TreeConfig, TreeParams, UNSPLIT, encode_leaf};

const EFFORTS: [Effort; 5] = [
    Effort::Leaves(0),
    Effort::Leaves(3),
    Effort::Margin(f32::NEG_INFINITY),
    Effort::Margin(0.0),
    Effort::Full,
];

#[test]
fn k_beyond_the_rows_gives_all_rows() {
    for metric in METRICS {
        for n in [1, 2, 31, 33, 700] {
            let (index, queries) = sample(n, 5, 3, shape(metric));
            for effort in EFFORTS {
                let params = SearchParams { k: 10_000, effort, ..Default::default() };
                let mut found = index.search(&mut Searcher::new(), &queries[0], &params, &|_| false);
                found.sort_unstable();
                assert_eq!(found, (0..n).map(row_number).collect::<Vec<_>>(), "{metric} {n} {effort:?}");
            }
        }
    }
}

#[test]
fn hidden_rows_never_count() {
    for metric in METRICS {
        let (index, queries) = sample(2500, 16, 5, shape(metric));
        let mut searcher = Searcher::new();
        for query in &queries {
            for effort in EFFORTS {
                let params = SearchParams { k: 5, effort, ..Default::default() };
                // All but one; all but three, far away; all.
                let only = row_number(1234);
                assert_eq!(index.search(&mut searcher, query, &params, &|row| row != only), [only]);
                let far = index.truth(query, 2500, &|_| false)[2497..].to_vec();
                assert_eq!(index.search(&mut searcher, query, &params, &|row| !far.contains(&row)), far);
                assert!(index.search(&mut searcher, query, &params, &|_| true).is_empty());
                assert_eq!(searcher.counters().leaves as usize, index.nav.leaves());
                // Every second row.
                let mask = |row: u64| row.is_multiple_of(2);
                let found = index.search(&mut searcher, query, &params, &mask);
                assert!(found.len() == 5 && found.iter().all(|&row| !mask(row)));
                if effort == Effort::Full {
                    assert_eq!(found, index.truth(query, 5, &mask));
                }
            }
        }
    }
}

#[test]
fn wrong_bounds_cost_recall_but_never_rows() {
    // With eps0 near zero nearly every bound is wrong, between 1-bit and refine codes above all.
    for metric in METRICS {
        for refine in [true, false] {
            let (index, queries) = sample(2500, 16, 20, Shape { refine, ..shape(metric) });
            let mut searcher = Searcher::new();
            for (i, query) in queries.iter().enumerate() {
                for eps0 in [0.0, 0.2, 1.0, 2.5] {
                    for effort in EFFORTS {
                        let k = [1, 2, 10, 37, 300, 2499, 2500, 2600][i % 8];
                        let params = SearchParams { k, eps0, effort };
                        let mask = |row: u64| i % 2 == 1 && row.is_multiple_of(5);
                        let live = (0..2500).filter(|&place| !mask(row_number(place))).count();
                        let mut found = index.search(&mut searcher, query, &params, &mask);
                        assert_eq!(found.len(), k.min(live), "{metric} {refine} {eps0} {effort:?} {k}");
                        found.sort_unstable();
                        found.dedup();
                        assert_eq!(found.len(), k.min(live));
                    }
                }
            }
        }
    }
}

#[test]
fn no_leaves() {
    let frame = Arc::new(Frame::new(Kernels::detect(), Metric::Cosine, 3, vec![0.0; 12]));
    let nav = Nav::empty(frame.clone());
    assert_eq!((nav.leaves(), nav.levels(), nav.bytes()), (0, 0, 0));
    let built = NavBuilder::new(frame).finish().expect("empty is fine");
    for nav in [nav, built] {
        let mut searcher = Searcher::new();
        searcher.begin(&nav, &[1.0; 12], &SearchParams::default());
        assert!(searcher.next_wave(&nav).is_empty());
        assert!(searcher.next_rerank().is_empty());
        assert!(searcher.finish().is_empty());
        assert_eq!(searcher.counters(), Counters::default());
    }
}

#[test]
fn extra_rows_are_searched_with_the_leaves() {
    for metric in METRICS {
        let dim = 20;
        let (index, queries) = sample(1500, dim, 10, shape(metric));
        // The tail: some rows of the index again under other numbers, coded against the mean.
        let frame = index.nav.frame();
        let rows: Vec<u64> = (0..300).map(|i| row_number(i * 5)).collect();
        let config = TreeConfig { dim, metric, seed: 1, copies: 1, refine: true, small_limit: 0 };
        let mean = frame.mean().to_vec();
        let params = TreeParams { split_size: UNSPLIT, mean: mean.clone(), bands: Vec::new() };
        let kernels = frame.kernels();
        let codes = encode_leaf(&config, &params, frame.rotation(), kernels, &mean, &rows, &index.vectors)
            .expect("ok");
        let numbers: Vec<u64> = rows.iter().map(|row| row + 1).collect();
        let original = |row: u64| if row.is_multiple_of(3) { row - 1 } else { row };
        let hidden = |row: u64| row.is_multiple_of(7);
        for (nav, leaves) in [(&index.nav, true), (&Nav::empty(frame.clone()), false)] {
            let mut searcher = Searcher::new();
            for query in &queries {
                searcher.begin(nav, query, &SearchParams::default());
                searcher.scan_extra(nav, &mean, &[leaf_part(&numbers, &codes)], &hidden);
                while !searcher.next_wave(nav).is_empty() {
                    searcher.scan_wave(nav, &index, &hidden);
                }
                loop {
                    let rows = searcher.next_rerank().to_vec();
                    if rows.is_empty() {
                        break;
                    }
                    let x = searcher.prepared_query();
                    let distances: Vec<f32> =
                        rows.iter().map(|&r| frame.exact(x, index.vectors.row(original(r)))).collect();
                    searcher.feed_rerank(&distances);
                }
                let exact = pando_kernels::ExactQuery::new(kernels, metric, query);
                let rank = |rows: &mut dyn Iterator<Item = u64>| {
                    let mut all: Vec<(f64, u64)> =
                        rows.map(|r| (exact.distance(index.vectors.row(original(r))), r)).collect();
                    all.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
                    all.into_iter().map(|(_, row)| row).take(10).collect::<Vec<_>>()
                };
                let found = rank(&mut searcher.finish().iter().map(|h| h.row));
                let tree = (0..if leaves { 1500 } else { 0 }).map(row_number);
                let truth = rank(&mut tree.chain(numbers.iter().copied()).filter(|&r| !hidden(r)));
                assert_eq!(found, truth, "{metric} {leaves}");
            }
        }
    }
}

#[test]
fn the_first_leaf_is_always_scanned() {
    let dim = 8;
    let (index, queries) = sample(600, dim, 5, shape(Metric::L2));
    let frame = index.nav.frame();
    let far = super::fixture::Vectors { dim, data: vec![50.0; dim * 40] };
    let rows: Vec<u64> = (0..40).map(row_number).collect();
    let config = TreeConfig { dim, metric: Metric::L2, seed: 1, copies: 1, refine: true, small_limit: 0 };
    let params = TreeParams { split_size: UNSPLIT, mean: frame.mean().to_vec(), bands: Vec::new() };
    let codes = encode_leaf(&config, &params, frame.rotation(), frame.kernels(), frame.mean(), &rows, &far)
        .expect("ok");
    let numbers: Vec<u64> = rows.iter().map(|r| r + 1_000_000).collect();
    let mut searcher = Searcher::new();
    let params = SearchParams { effort: Effort::Margin(f32::NEG_INFINITY), ..Default::default() };
    searcher.begin(&index.nav, &queries[0], &params);
    searcher.scan_extra(&index.nav, frame.mean(), &[leaf_part(&numbers, &codes)], &NoMask);
    assert!(!searcher.next_wave(&index.nav).is_empty());
    searcher.scan_wave(&index.nav, &index, &NoMask);
    assert!(searcher.next_wave(&index.nav).is_empty());
    // The margin asks for none: the first few are scanned all the same, and nothing after them.
    assert_eq!(searcher.counters().leaves, 4);
    index.measure(&mut searcher);
    assert!(searcher.finish().iter().all(|h| h.row < 1_000_000));
}

#[test]
fn some_leaves_are_scanned_whatever_the_margin() {
    for (metric, leaves) in [(Metric::L2, 4), (Metric::Cosine, 4), (Metric::Dot, 8)] {
        let (index, queries) = sample(2000, 16, 1, shape(metric));
        let params = SearchParams { k: 1, effort: Effort::Margin(f32::NEG_INFINITY), ..Default::default() };
        let mut searcher = Searcher::new();
        index.search(&mut searcher, &queries[0], &params, &|_| false);
        assert_eq!(searcher.counters().leaves, leaves, "{metric}");
    }
}

#[test]
fn zero_queries_and_vanishing_and_huge_vectors() {
    for metric in [Metric::L2, Metric::Dot] {
        for scale in [1e-19, 1.0, 1e17] {
            let dim = 10;
            let mut data = mixture(&mut Rng(9), 400, dim, 8, 0.5);
            data.iter_mut().for_each(|x| *x *= scale);
            let index = Index::build(Kernels::detect(), Vectors { dim, data }, shape(metric));
            let mut queries = vec![vec![0.0; dim]];
            queries.extend((0..5).map(|i| index.vectors.row(row_number(i * 70)).to_vec()));
            for query in &queries {
                for effort in EFFORTS {
                    let params = SearchParams { k: 6, effort, ..Default::default() };
                    let found = index.search(&mut Searcher::new(), query, &params, &|_| false);
                    assert_eq!(found.len(), 6);
                    if effort == Effort::Full {
                        assert_eq!(found, index.truth(query, 6, &|_| false), "{metric} {scale}");
                    }
                }
            }
        }
    }
}
