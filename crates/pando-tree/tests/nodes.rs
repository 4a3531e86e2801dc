//! Groups and inner levels of wide trees, made by hand from leaves of one row.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::{Rows, config, normal, with_env};
use pando_kernels::Metric;
use pando_tree::{Change, Group, Leaf, NoRows, Top, Tree, TreeParams, UNSPLIT, advance, check};

const DIM: usize = 4;

fn vector(row: u64) -> Vec<f32> {
    (0..DIM as u64).map(|i| normal(row * 8 + i)).collect()
}

/// `n` leaves of one row each in one group; band 1 for every tenth when there are bands.
fn comb(n: u64, banded: bool) -> Tree {
    let band = |row: u64| u8::from(banded && row.is_multiple_of(10));
    let leaf = |row: u64| Leaf {
        id: row,
        band: band(row),
        whole: false,
        centroid: vector(row),
        r2: 0.0,
        primaries: vec![row],
        secondaries: Vec::new(),
        change: Change::Clean,
    };
    let mut groups = BTreeMap::new();
    for b in 0..=u8::from(banded) {
        let id = n + u64::from(b);
        let leaves = (0..n).filter(|&row| band(row) == b).collect();
        groups.insert(id, Group { id, leaves, centroid: vec![0.0; DIM], changed: false, recoded: false });
    }
    Tree {
        params: TreeParams {
            split_size: UNSPLIT,
            mean: vec![0.0; DIM],
            bands: if banded { vec![1.0] } else { Vec::new() },
        },
        leaves: (0..n).map(|row| (row, leaf(row))).collect(),
        top: Top { child_level: 1, children: groups.keys().copied().collect() },
        groups,
        inners: BTreeMap::new(),
        next_id: n + 2,
        scrub_cursor: 0,
    }
}

#[test]
fn levels_grow_and_shrink() {
    for (n, banded, levels) in [(80_000u64, false, 3), (15_000, true, 2)] {
        let mut cfg = config(DIM, if banded { Metric::Dot } else { Metric::L2 });
        cfg.copies = 1;
        let rows = Rows::new(DIM, vector);
        let go = |tree: Tree, dead: &BTreeSet<u64>| {
            let (tree, _) = with_env(&rows, 2, 1 << 20, |env| advance(&cfg, tree, &[], dead, env).unwrap());
            check(&cfg, &tree, dead).unwrap();
            tree
        };
        // 80,000 leaves: over 3,300 groups, about 75 nodes of groups, and a level above.
        let tree = go(comb(n, banded), &BTreeSet::new());
        assert_eq!(tree.top.child_level, levels);
        let sizes: Vec<usize> = tree.groups.values().map(|g| g.leaves.len()).collect();
        assert!(sizes.iter().filter(|&&s| s < 8).count() * 20 < sizes.len(), "few groups are tiny");
        // Nothing to do: nothing changes.
        let again = go(tree.clone(), &BTreeSet::new());
        assert!(again.groups.values().all(|g| !g.changed) && again.inners.values().all(|i| !i.changed));
        assert_eq!((&again.top, again.next_id), (&tree.top, tree.next_id));
        // Rows die until one group is left.
        let mut tree = again;
        for part in [2, 16, 64, n / 30] {
            let dead: BTreeSet<u64> = (0..n).filter(|row| row % part != 0).collect();
            tree = go(tree, &dead);
        }
        assert_eq!(tree.top.child_level, 1);
        assert!(tree.inners.is_empty() && tree.groups.len() <= 4, "{} groups", tree.groups.len());
    }
}

#[test]
fn one_changed_leaf_touches_one_path() {
    let mut cfg = config(DIM, Metric::L2);
    cfg.copies = 1;
    let rows = Rows::new(DIM, |row| vector(if row >= 50_000 { row - 50_000 } else { row }));
    let (tree, _) =
        with_env(&rows, 1, 1 << 20, |env| advance(&cfg, comb(20_000, false), &[], &NoRows, env).unwrap());
    let (next, report) =
        with_env(&rows, 1, 1 << 20, |env| advance(&cfg, tree, &[50_123], &NoRows, env).unwrap());
    check(&cfg, &next, &NoRows).unwrap();
    assert_eq!(report.added, 1);
    assert_eq!(next.leaves[&123].primaries, [123, 50_123], "equal vectors meet in one leaf");
    assert_eq!(next.leaves.values().filter(|l| l.change != Change::Clean).count(), 1);
    assert_eq!(next.groups.values().filter(|g| g.changed).count(), 1);
    assert_eq!(next.groups.values().filter(|g| g.recoded).count(), 0);
    assert_eq!(next.inners.values().filter(|i| i.changed).count(), usize::from(next.top.child_level) - 1);
}
