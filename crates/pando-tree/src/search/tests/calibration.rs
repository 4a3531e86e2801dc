//! Targets are met by what the table says.

use super::fixture::row_number;
use super::*;
use crate::search::calibrate::{K_STEPS, TARGETS, calibrate, sample_rows};
use crate::search::*;

fn pool(threads: usize) -> rayon::ThreadPool {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads")
}

fn table(index: &Index, threads: usize) -> MarginTable {
    let n = index.vectors.len();
    let sample = sample_rows(1, (0..n).map(row_number), n as u64);
    calibrate(&index.nav, &sample, index, &index.vectors, &NoMask, &pool(threads)).expect("in memory")
}

#[test]
fn targets_are_met() {
    for metric in METRICS {
        for refine in [true, false] {
            let (index, queries) = sample(12_000, 40, 150, Shape { refine, ..shape(metric) });
            let table = table(&index, 2);
            let mut searcher = Searcher::new();
            for (k, target) in [(10, 0.9), (10, 0.95), (10, 0.99), (100, 0.95), (1, 0.95)] {
                let params = SearchParams {
                    k,
                    eps0: calibrate::eps0_for(metric, Some(target)),
                    effort: effort_for(Some(&table), k, target, u64::MAX),
                };
                let mut sum = 0.0;
                let mut leaves = 0;
                for query in &queries {
                    let found = index.search(&mut searcher, query, &params, &|_| false);
                    sum += recall(&found, &index.truth(query, k, &|_| false));
                    leaves += searcher.counters().leaves;
                }
                let mean = sum / queries.len() as f64;
                assert!(mean >= f64::from(target) - 0.025, "{metric} {refine} {k} {target}: {mean}");
                assert!((leaves as usize) < queries.len() * index.nav.leaves() / 2, "{metric} {leaves}");
            }
        }
    }
}

#[test]
fn bounds_are_wider_for_higher_targets() {
    for metric in METRICS {
        let widths = TARGETS.map(|target| calibrate::eps0_for(metric, Some(target)));
        assert!(widths.windows(2).all(|pair| pair[0] <= pair[1]), "{metric}: {widths:?}");
        let few = if metric == Metric::Dot { WIDE_EPS0 } else { NARROW_EPS0 };
        assert_eq!((widths[0], widths[TARGETS.len() - 1]), (few, WIDE_EPS0), "{metric}");
    }
    assert_eq!(calibrate::eps0_for(Metric::L2, None), DEFAULT_EPS0);
}

#[test]
fn the_table_is_a_function_of_the_index() {
    let (index, _) = sample(3000, 24, 0, shape(Metric::Cosine));
    let first = table(&index, 1);
    assert_eq!(first, table(&index, 3));
    for row in first.margins {
        assert!(row.iter().all(|m| m.is_finite()));
        assert!(row.windows(2).all(|pair| pair[0] <= pair[1]));
    }
}

#[test]
fn tiny_collections_can_be_calibrated() {
    for n in [1, 2, 30, 200] {
        let (index, _) = sample(n, 6, 0, shape(Metric::L2));
        let table = table(&index, 1);
        assert!(table.margins.iter().flatten().all(|m| m.is_finite()), "{n}");
    }
}

#[test]
fn errors_of_the_source_are_passed_on() {
    struct Broken;
    impl CalibrationSource for Broken {
        fn with_leaves(&self, _: &[u32], _: &mut dyn FnMut(&dyn LeafSource)) -> Result<(), crate::TreeError> {
            Err(crate::TreeError::Cancelled)
        }
    }
    let (index, _) = sample(500, 6, 0, shape(Metric::L2));
    let result = calibrate(&index.nav, &[row_number(3)], &Broken, &index.vectors, &NoMask, &pool(1));
    assert!(matches!(result, Err(crate::TreeError::Cancelled)));
}

#[test]
fn interpolation() {
    let mut table = MarginTable::default();
    for (k, row) in table.margins.iter_mut().enumerate() {
        for (t, margin) in row.iter_mut().enumerate() {
            *margin = 100.0 * k as f32 + t as f32;
        }
    }
    for (k, &step) in K_STEPS.iter().enumerate() {
        for (t, &target) in TARGETS.iter().enumerate() {
            assert_eq!(margin_for(&table, step, target), 100.0 * k as f32 + t as f32);
        }
    }
    assert_eq!(margin_for(&table, 10, 0.1), 100.0);
    assert_eq!(margin_for(&table, 10_000, 0.9999), 100.0 * (K_STEPS.len() - 1) as f32 + 11.0);
    assert!((margin_for(&table, 10, 0.91) - 102.5).abs() < 1e-3);
    let mut last = 0.0;
    for k in 1..1000 {
        let margin = margin_for(&table, k, 0.95);
        assert!(margin >= last);
        last = margin;
    }
    assert_eq!(effort_for(Some(&table), 10, 1.0, 1000), Effort::Full);
    assert_eq!(effort_for(None, 10, 0.95, 1000), Effort::Margin(f32::INFINITY));
    assert_eq!(effort_for(Some(&table), 10, 0.95, 51), Effort::Margin(105.0));
    assert_eq!(effort_for(Some(&table), 10, 0.95, 50), Effort::Margin(f32::INFINITY));
}

#[test]
fn the_sample_depends_on_the_set_of_rows_only() {
    let rows = || (0..5000u64).map(|i| i * 7);
    let sample = sample_rows(3, rows(), 5000);
    assert_eq!(sample.len(), 256);
    let mut reversed: Vec<u64> = rows().collect();
    reversed.reverse();
    assert_eq!(sample, sample_rows(3, reversed.into_iter(), 5000));
    assert_ne!(sample, sample_rows(4, rows(), 5000));
    assert_eq!(sample_rows(3, 0..10, 10).len(), 10);
    assert_eq!(sample_rows(3, rows(), 1_000_000).len(), 512);
}
