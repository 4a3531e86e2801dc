//! The order of leaves: complete, right, the same however lazily it is asked for.
#![allow(clippy::disallowed_methods)] // Test data may use any arithmetic.

use std::sync::Arc;

use pando_kernels::Kernels;

use super::*;
use crate::search::nav::NavState;
use crate::search::order::{LeafOrder, Ranked};
use crate::search::*;

/// Leaves on `levels` levels with random centroids near their node's.
fn tree(leaves: usize, fan: usize, dim: usize) -> Nav {
    let frame = Arc::new(Frame::new(Kernels::detect(), Metric::L2, 1, vec![0.0; dim]));
    let mut widths = vec![leaves];
    while widths[0] > fan {
        widths.insert(0, widths[0].div_ceil(fan));
    }
    let mut rng = Rng(3);
    let mut builder = NavBuilder::new(frame.clone());
    let mut parents = vec![vec![0.0f32; dim]];
    for (level, &width) in widths.iter().enumerate() {
        let mut next = Vec::new();
        let count = parents.len();
        for (p, parent) in parents.iter().enumerate() {
            let n = width * (p + 1) / count - width * p / count;
            let (mut nibbles, mut scale, mut add, mut r2) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
            for _ in 0..n {
                let spread = 1.0 / (level + 1) as f32;
                let c: Vec<f32> = parent.iter().map(|x| x + spread * rng.gauss()).collect();
                let mut code = vec![0; frame.padded() / 2];
                let constants = encode_nav_child(&frame, &c, rng.unit(), &mut code);
                nibbles.extend(code);
                scale.push(constants.scale);
                add.push(constants.add);
                r2.push(constants.r2);
                next.push(c);
            }
            builder.push_node(level, &nibbles, &scale, &add, &r2).expect("fits");
        }
        parents = next;
    }
    builder.finish().expect("whole")
}

fn state(nav: &Nav, query: &[f32]) -> NavState {
    let mut rotated = vec![0.0; nav.frame().padded()];
    nav.frame().rotation().apply(nav.frame().kernels(), query, &mut rotated);
    let mut state = NavState { constant: nav.frame().kernels().norm2(&rotated), ..Default::default() };
    state.query.prepare(&rotated);
    state
}

fn all(nav: &Nav, state: &NavState) -> Vec<Ranked> {
    let mut order = LeafOrder::default();
    order.begin(nav, state);
    (0..).map_while(|rank| order.get(nav, state, rank)).collect()
}

#[test]
fn a_flat_order_is_a_sort() {
    for leaves in [1, 2, 31, 500, 3000] {
        let nav = tree(leaves, 16, 24);
        let query: Vec<f32> = (0..24).map(|i| (i as f32).sin()).collect();
        let state = state(&nav, &query);
        let order = all(&nav, &state);
        assert_eq!(order.len(), leaves);
        if leaves > 1 {
            let mut scores = vec![0.0; leaves];
            nav.score(&state, nav.levels() - 1, 0..leaves, &mut scores);
            let mut sorted: Vec<(f32, u32)> = scores.iter().copied().zip(0..).collect();
            sorted.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            // But for the first: the nearest centroid.
            let nearest = nav.nearest_leaf(&scores, &[]).expect("scores are numbers");
            assert_eq!(order[0].leaf as usize, nearest);
            sorted.retain(|s| s.1 as usize != nearest);
            assert!(
                order[1..].iter().zip(&sorted).all(|(r, s)| (r.score, r.leaf) == (s.0 + state.constant, s.1))
            );
        }
    }
}

#[test]
fn a_beam_loses_no_leaf_and_finds_the_nearest() {
    let nav = tree(20_000, 20, 24);
    assert_eq!(nav.levels(), 4);
    let mut rng = Rng(77);
    let mut kept = 0;
    for _ in 0..10 {
        let query: Vec<f32> = (0..24).map(|_| rng.gauss()).collect();
        let state = state(&nav, &query);
        let order = all(&nav, &state);
        let mut seen: Vec<u32> = order.iter().map(|r| r.leaf).collect();
        seen.sort_unstable();
        assert!(seen.iter().copied().eq(0..20_000));
        let mut scores = vec![0.0; 20_000];
        nav.score(&state, nav.levels() - 1, 0..20_000, &mut scores);
        let mut flat: Vec<(f32, u32)> = scores.iter().copied().zip(0..).collect();
        flat.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        kept += order[..50].iter().filter(|r| flat[..50].iter().any(|f| f.1 == r.leaf)).count();
    }
    assert!(kept >= 480, "{kept}");
}

#[test]
fn groups_of_leaves() {
    let nav = tree(1000, 16, 24);
    let mut last = 0;
    for leaf in 0..1000 {
        let group = nav.leaf_group(leaf);
        assert!(group == last || group == last + 1);
        assert!(nav.children(nav.levels() - 2, group).contains(&(leaf as usize)));
        last = group;
    }
    assert_eq!(last as usize + 1, nav.width(nav.levels() - 2));
    assert!(nav.bytes() > 1000 * nav.frame().padded() / 2);
}

#[test]
fn broken_nodes_are_refused() {
    let frame = Arc::new(Frame::new(Kernels::detect(), Metric::Dot, 1, vec![0.0; 10]));
    let mut builder = NavBuilder::new(frame.clone());
    let row = frame.padded() / 2;
    assert!(builder.push_node(1, &vec![0; row], &[1.0], &[1.0], &[1.0]).is_err());
    assert!(builder.push_node(0, &vec![0; row], &[1.0, 2.0], &[1.0, 1.0], &[1.0, 1.0]).is_err());
    assert!(builder.push_node(0, &vec![0; 2 * row], &[1.0, 2.0], &[1.0], &[1.0, 1.0]).is_err());
    builder.push_node(0, &vec![0; 2 * row], &[1.0, 2.0], &[1.0, 1.0], &[1.0, 1.0]).expect("fits");
    assert!(builder.push_node(0, &vec![0; row], &[1.0], &[1.0], &[1.0]).is_err());
    builder.push_node(1, &vec![0; row], &[1.0], &[1.0], &[1.0]).expect("fits");
    assert!(builder.finish().is_err(), "the second node is missing");
}
