//! Full effort is exact search.

use pando_kernels::Kernels;

use super::*;
use crate::search::*;

fn full(k: usize) -> SearchParams {
    SearchParams { k, effort: Effort::Full, ..Default::default() }
}

#[test]
fn equals_exact_search() {
    for metric in METRICS {
        for dim in [1, 2, 3, 17, 64, 130] {
            let (index, queries) = sample(1500, dim, 15, shape(metric));
            let mut searcher = Searcher::new();
            for (i, query) in queries.iter().enumerate() {
                let k = [1, 7, 100, 2000][i % 4];
                let found = index.search(&mut searcher, query, &full(k), &|_| false);
                assert_eq!(found, index.truth(query, k, &|_| false), "{metric} {dim} {k}");
                assert_eq!(searcher.counters().leaves as usize, index.nav.leaves());
            }
        }
    }
}

#[test]
fn the_sure_bound_saves_work_where_it_can() {
    let (index, queries) = sample(3000, 4, 20, shape(Metric::L2));
    let mut searcher = Searcher::new();
    let mut measured = 0;
    for query in &queries {
        index.search(&mut searcher, query, &full(5), &|_| false);
        measured += searcher.counters().reranked;
    }
    assert!(measured < 20 * 3000 / 2, "{measured}");
}

#[test]
fn ties_and_duplicates_come_in_the_order_of_rows() {
    for metric in METRICS {
        let mut rng = Rng(11);
        let dim = 24;
        let distinct = mixture(&mut rng, 200, dim, 10, 0.5);
        // Every vector six times, far apart in row order; and one vector 500 times.
        let mut data = distinct.repeat(6);
        data.extend(distinct[..dim].repeat(500));
        let index = Index::build(Kernels::detect(), Vectors { dim, data }, shape(metric));
        let mut searcher = Searcher::new();
        for place in 0..20 {
            let query = &distinct[place * dim..(place + 1) * dim];
            for k in [1, 4, 6, 10, 300] {
                let found = index.search(&mut searcher, query, &full(k), &|_| false);
                assert_eq!(found, index.truth(query, k, &|_| false), "{metric} {place} {k}");
            }
        }
    }
}

#[test]
fn rows_that_differ_in_the_last_bit_are_ranked_in_f64() {
    for metric in METRICS {
        let mut rng = Rng(12);
        let dim = 40;
        let base: Vec<f32> = (0..dim).map(|_| rng.gauss()).collect();
        let mut data = Vec::new();
        for _ in 0..400 {
            let mut x = base.clone();
            let i = rng.below(dim);
            x[i] = f32::from_bits(x[i].to_bits() + rng.below(3) as u32);
            data.extend(x);
        }
        let index = Index::build(Kernels::detect(), Vectors { dim, data }, shape(metric));
        let query: Vec<f32> = base.iter().map(|x| x + 0.3).collect();
        let found = index.search(&mut Searcher::new(), &query, &full(20), &|_| false);
        assert_eq!(found, index.truth(&query, 20, &|_| false), "{metric}");
    }
}

#[test]
fn re_ranking_between_waves_changes_nothing() {
    let (index, queries) = sample(4000, 20, 10, shape(Metric::L2));
    for query in &queries {
        let mut searcher = Searcher::new();
        searcher.begin(&index.nav, query, &full(10));
        let mut wave = 0;
        while !searcher.next_wave(&index.nav).is_empty() {
            searcher.scan_wave(&index.nav, &index, &NoMask);
            wave += 1;
            match wave % 3 {
                0 => index.measure(&mut searcher),
                1 => {
                    // Looks, and measures one batch of perhaps many.
                    searcher.candidates();
                    let rows = searcher.next_rerank().to_vec();
                    let query = searcher.prepared_query().to_vec();
                    let d: Vec<f32> =
                        rows.iter().map(|r| index.nav.frame().exact(&query, index.vectors.row(*r))).collect();
                    searcher.feed_rerank(&d);
                }
                _ => {}
            }
        }
        index.measure(&mut searcher);
        assert_eq!(index.rank(&mut searcher, query, 10), index.truth(query, 10, &|_| false));
    }
}
