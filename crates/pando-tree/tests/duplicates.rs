//! Equal vectors: no endless splitting, no lost rows.

mod common;

use common::{Model, Rows, clustered, config};
use pando_kernels::Metric;

#[test]
fn all_rows_equal() {
    for metric in [Metric::L2, Metric::Cosine, Metric::Dot] {
        let rows = Rows::new(16, |_| vec![0.25; 16]);
        let mut model = Model::new(config(16, metric), rows);
        model.checkpoint(3000, &[]);
        let tree = model.tree.as_ref().unwrap();
        assert_eq!(tree.leaves.len(), 1);
        assert!(tree.leaves.values().all(|l| l.whole && l.r2 < 1e-10));
        model.checkpoint(1000, &[1, 2, 3]);
        assert_eq!(model.reports[0].splits, 0);
        assert!(model.tree.as_ref().unwrap().leaves.values().all(|l| l.whole), "equal rows keep it whole");
    }
}

#[test]
fn scaled_copies_under_cosine_settle() {
    // Equal up to rounding once normalised: leaves may be cut by rounding noise, but not again and again.
    let rows = Rows::new(16, |row| (0..16).map(|i| (1.0 + i as f32) * (1.0 + row as f32 * 0.013)).collect());
    let mut model = Model::new(config(16, Metric::Cosine), rows);
    model.checkpoint(2000, &[]);
    for _ in 0..3 {
        model.checkpoint(600, &[]);
    }
    assert!(model.reports.iter().all(|r| r.rounds < 8), "{:?}", model.reports);
}

#[test]
fn many_equal_rows_among_others() {
    let rows =
        Rows::new(32, |row| if row.is_multiple_of(10) { vec![0.7; 32] } else { clustered(row, 32, 60, 0.6) });
    let mut model = Model::new(config(32, Metric::L2), rows);
    model.checkpoint(20_000, &[]);
    let whole: Vec<usize> =
        model.tree.as_ref().unwrap().leaves.values().filter(|l| l.whole).map(|l| l.primaries.len()).collect();
    assert_eq!(whole, [2000]);
    for _ in 0..4 {
        model.checkpoint(500, &[]);
    }
    let last = model.reports.last().unwrap();
    assert!(last.rounds < 4, "{last:?}");
    assert!(model.tree.as_ref().unwrap().leaves.values().any(|l| l.whole && l.primaries.len() == 2200));
}

#[test]
fn a_different_row_ends_wholeness() {
    let rows = Rows::new(8, |row| {
        let x = if row >= 3000 { 0.5 + row as f32 * 1e-3 } else { 0.5 };
        vec![x; 8]
    });
    let mut model = Model::new(config(8, Metric::L2), rows);
    model.checkpoint(3000, &[]);
    assert_eq!(model.tree.as_ref().unwrap().leaves.len(), 1);
    model.checkpoint(300, &[]);
    assert!(model.reports[0].splits > 0);
    assert!(model.tree.as_ref().unwrap().leaves.len() > 1);
}

#[test]
fn zero_vectors_under_dot() {
    let rows =
        Rows::new(8, |row| if row.is_multiple_of(3) { vec![0.0; 8] } else { clustered(row, 8, 9, 0.5) });
    let mut model = Model::new(config(8, Metric::Dot), rows);
    model.checkpoint(3000, &[]);
    model.checkpoint(900, &[0, 1, 2, 3]);
}
