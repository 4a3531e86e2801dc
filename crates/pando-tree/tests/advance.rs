//! Many checkpoints against a plain model: no row lost or doubled, marks exact, sizes in range.
#![allow(clippy::disallowed_methods)] // Test data may use any arithmetic.

mod common;

use common::{Model, Rows, clustered, config, mix, normal, unit};
use pando_kernels::Metric;

fn churn(mut model: Model, first: u64, checkpoints: u64, per: u64) -> Model {
    model.checkpoint(first, &[]);
    for i in 0..checkpoints {
        let kill = model.choose((mix(i) % per) as usize, i);
        // The row that comes next dies in the same checkpoint.
        let mut kill = kill;
        kill.push(model.next_row);
        model.threads = 1 + (i % 3) as usize;
        model.memory = [1 << 16, 1 << 20, 1 << 28][(i % 3) as usize];
        let added = 1 + mix(i ^ 99) % (2 * per);
        model.checkpoint(added, &kill);
    }
    model
}

#[test]
fn random_adds_and_deletes_l2() {
    let rows = Rows::new(20, |row| clustered(row, 20, 30, 0.5));
    let model = churn(Model::new(config(20, Metric::L2), rows), 3000, 30, 250);
    assert!(model.reports.iter().any(|r| r.splits > 0));
    assert!(model.reports.iter().any(|r| r.moved > 0));
    assert!(model.reports.iter().any(|r| r.scrubbed > 0));
    assert!(model.off_nearest() < 0.15, "{}", model.off_nearest());
}

#[test]
fn random_adds_and_deletes_cosine_from_nothing() {
    let rows = Rows::new(96, |row| clustered(row, 96, 10, 1.0));
    let mut model = Model::new(config(96, Metric::Cosine), rows);
    model.checkpoint(0, &[]);
    let model = churn(model, 100, 25, 300);
    assert!(model.builds >= 3, "small, then the first tree");
    assert!(model.off_nearest() < 0.15, "{}", model.off_nearest());
}

#[test]
fn one_copy_has_no_secondaries() {
    let rows = Rows::new(8, |row| clustered(row, 8, 5, 1.0));
    let mut cfg = config(8, Metric::L2);
    cfg.copies = 1;
    let model = churn(Model::new(cfg, rows), 2000, 6, 300);
    assert!(model.tree.unwrap().leaves.values().all(|l| l.secondaries.is_empty()));
}

#[test]
fn everything_dies_and_comes_back() {
    let rows = Rows::new(16, |row| clustered(row, 16, 12, 0.7));
    let mut model = Model::new(config(16, Metric::L2), rows);
    model.checkpoint(4000, &[]);
    // Slowly, so that leaves empty and merge and levels shrink.
    for i in 0..8 {
        let kill = model.choose(450, i);
        model.checkpoint(0, &kill);
    }
    assert!(model.reports.iter().any(|r| r.merges > 0));
    let rest: Vec<u64> = model.live.iter().copied().collect();
    model.checkpoint(0, &rest);
    assert!(model.tree.as_ref().unwrap().leaves.is_empty());
    model.checkpoint(700, &[]);
    assert!(model.tree.as_ref().unwrap().leaves.len() > 1);
}

#[test]
fn merges_when_most_rows_die() {
    let rows = Rows::new(16, |row| clustered(row, 16, 40, 0.4));
    let mut cfg = config(16, Metric::L2);
    cfg.small_limit = 10;
    let mut model = Model::new(cfg, rows);
    model.checkpoint(20_000, &[]);
    let before = model.tree.as_ref().unwrap().leaves.len();
    for i in 0..6 {
        let kill = model.choose(model.live.len() / 2, i);
        model.checkpoint(0, &kill);
    }
    let after = model.tree.as_ref().unwrap().leaves.len();
    assert!(after * 8 < before, "{before} leaves became {after}");
    assert!(model.reports.iter().all(|r| r.rounds <= 8));
}

#[test]
fn drifting_arrival() {
    // The centre of what arrives wanders; the first tree never saw most of it.
    let rows = Rows::new(24, |row| {
        let t = row as f32 / 3000.0;
        (0..24u64).map(|i| (t * (1.0 + i as f32 * 0.1)) + normal(mix(row).wrapping_add(i))).collect()
    });
    let mut model = Model::new(config(24, Metric::L2), rows);
    model.checkpoint(3000, &[]);
    for i in 0..12 {
        let kill = model.choose(100, i);
        model.checkpoint(1500, &kill);
    }
    assert_eq!(model.builds, 1);
    assert!(model.off_nearest() < 0.2, "{}", model.off_nearest());
}

#[test]
fn a_flood_into_one_leaf_is_split_at_once() {
    let rows = Rows::new(12, |row| {
        if row < 6000 {
            clustered(row, 12, 40, 0.3)
        } else {
            (0..12u64).map(|i| 40.0 + normal(mix(row).wrapping_add(i))).collect()
        }
    });
    let mut model = Model::new(config(12, Metric::L2), rows);
    model.checkpoint(6000, &[]);
    model.checkpoint(5500, &[]);
    assert_eq!(model.builds, 1);
    assert!(model.reports[0].rounds < 8, "{:?}", model.reports[0]);
    let inner = &model.tree.as_ref().unwrap().groups;
    assert!(inner.len() > 1);
}

#[test]
fn small_dimensions() {
    for dim in 1..=3 {
        for metric in [Metric::L2, Metric::Cosine, Metric::Dot] {
            let rows = Rows::new(dim, move |row| {
                (0..dim as u64).map(|i| normal(mix(row).wrapping_add(i)) + 0.01).collect()
            });
            churn(Model::new(config(dim, metric), rows), 1500, 6, 300);
        }
    }
}

#[test]
fn dot_with_wild_norms() {
    let rows = Rows::new(10, |row| {
        let scale = 10f32.powi((mix(row) % 31) as i32 - 15);
        clustered(row, 10, 8, 0.6).into_iter().map(|x| x * scale).collect()
    });
    let mut model = Model::new(config(10, Metric::Dot), rows);
    model.checkpoint(3000, &[]);
    let tree = model.tree.as_ref().unwrap();
    assert_eq!(tree.params.bands.len(), 3);
    assert!(tree.params.mean.iter().all(|m| *m == 0.0));
    for i in 0..5 {
        let kill = model.choose(150, i);
        model.checkpoint(400, &kill);
    }
}

#[test]
fn a_band_that_died_out_comes_back() {
    let big = |row: u64| row.is_multiple_of(20);
    let rows = Rows::new(6, move |row| {
        let scale = if big(row) { 50.0 } else { 1.0 + unit(row) };
        clustered(row, 6, 4, 0.5).into_iter().map(|x| x * scale).collect()
    });
    let mut model = Model::new(config(6, Metric::Dot), rows);
    model.checkpoint(2000, &[]);
    let top = model.tree.as_ref().unwrap().params.bands.len() as u8;
    let kill: Vec<u64> = {
        let tree = model.tree.as_ref().unwrap();
        tree.leaves.values().filter(|l| l.band == top).flat_map(|l| l.primaries.iter().copied()).collect()
    };
    assert!(!kill.is_empty());
    model.checkpoint(0, &kill);
    assert!(model.tree.as_ref().unwrap().leaves.values().all(|l| l.band < top));
    model.checkpoint(400, &[]);
    assert!(model.tree.as_ref().unwrap().leaves.values().any(|l| l.band == top));
}

#[test]
fn huge_and_tiny_l2_vectors() {
    let rows = Rows::new(5, |row| {
        let scale = if row.is_multiple_of(3) { 3e18 } else { 1e-18 };
        clustered(row, 5, 6, 0.6).into_iter().map(|x| x * scale).collect()
    });
    let mut model = Model::new(config(5, Metric::Cosine), rows);
    model.checkpoint(1500, &[]);
    model.checkpoint(500, &[]);
    let rows = Rows::new(5, |row| clustered(row, 5, 6, 0.6).into_iter().map(|x| x * 3e18).collect());
    let mut model = Model::new(config(5, Metric::L2), rows);
    model.checkpoint(1500, &[]);
    model.checkpoint(500, &[]);
}
