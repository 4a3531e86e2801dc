//! Law 4: no row is lost or doubled by balancing. Checked before a head is created; a violation publishes nothing.

use pando_format::{Counts, Fingerprints, NodeChildren, NodeRefs, RowSet, SegmentEntry};
use pando_tree::{Totals, Tree, TreeConfig, fingerprint};

use crate::error::{Error, Result};

/// Dead rows as the tree asks for them.
pub struct Dead<'a>(pub &'a RowSet);

impl pando_tree::RowSet for Dead<'_> {
    fn contains(&self, row: u64) -> bool {
        self.0.contains(row)
    }
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Sum of the fingerprints of a set.
pub fn fingerprint_of(rows: &RowSet) -> u128 {
    rows.iter().fold(0, |sum, row| sum.wrapping_add(fingerprint(row)))
}

fn violated(what: String) -> Error {
    tracing::error!("law 4: {what}; the checkpoint is not published");
    Error::internal(format!("law 4: {what}"))
}

/// Every live row is in the tree exactly once, and nothing else is but dead rows. `live` and `live_fp` come from the
/// parent root and the plan, not from the tree.
pub fn check_tree(cfg: &TreeConfig, tree: &Tree, dead: &RowSet, live: u64, live_fp: u128) -> Result<Totals> {
    let totals = pando_tree::check(cfg, tree, &Dead(dead)).map_err(|e| violated(e.to_string()))?;
    if (totals.live, totals.live_fp) != (live, live_fp) {
        return Err(violated(format!(
            "{live} rows live, {} of them are in leaves (or others are)",
            totals.live
        )));
    }
    Ok(totals)
}

/// Dead rows that are still in a leaf.
pub fn dead_in_leaves(tree: &Tree, dead: &RowSet) -> RowSet {
    let rows = tree.leaves.values().flat_map(|leaf| leaf.primaries.iter().chain(&leaf.secondaries));
    rows.copied().filter(|row| dead.contains(*row)).collect()
}

/// What was written agrees with the tree that was checked: counts and fingerprints of the manifest.
pub fn check_written(
    totals: &Totals,
    groups: &[NodeRefs],
    segments: &[SegmentEntry],
    dead: u64,
    cumulative: (u64, u64),
) -> Result<(Counts, Fingerprints)> {
    let (mut primaries, mut secondaries) = ((0u64, 0u128), (0u64, 0u128));
    for group in groups {
        let NodeChildren::Group { leaves, .. } = &group.children else { continue };
        for leaf in leaves {
            primaries = (primaries.0 + u64::from(leaf.n_primary), primaries.1.wrapping_add(leaf.primary_fp));
            secondaries =
                (secondaries.0 + u64::from(leaf.n_secondary), secondaries.1.wrapping_add(leaf.secondary_fp));
        }
    }
    let expected = totals.live_fp.wrapping_add(totals.dead_primaries_fp);
    if primaries != (totals.live + totals.dead_primaries, expected) {
        return Err(violated("the leaves as written do not hold the live and the dead rows".into()));
    }
    if secondaries.0 != totals.secondaries + totals.dead_secondaries {
        return Err(violated("the leaves as written do not hold the secondaries".into()));
    }
    let in_segments: u64 = segments.iter().map(|s| s.live_rows).sum();
    if in_segments != totals.live {
        return Err(violated(format!("{in_segments} rows of the segments live, not {}", totals.live)));
    }
    let counts = Counts {
        live: totals.live,
        dead,
        dead_primaries: totals.dead_primaries,
        dead_secondaries: totals.dead_secondaries,
        primaries: primaries.0,
        secondaries: secondaries.0,
        cumulative_rows: cumulative.0,
        cumulative_bytes: cumulative.1,
    };
    let fingerprints = Fingerprints {
        live: totals.live_fp,
        dead_primaries: totals.dead_primaries_fp,
        primaries: primaries.1,
        secondaries: secondaries.1,
    };
    Ok((counts, fingerprints))
}

#[cfg(test)]
mod tests {
    use pando_kernels::{Kernels, Metric};
    use pando_tree::{Env, TreeError, VectorSource};

    use super::*;

    /// Row r lies at (r mod 7, r).
    struct Line;

    impl VectorSource for Line {
        fn read(&self, rows: &[u64], out: &mut [f32]) -> Result<(), TreeError> {
            for (row, out) in rows.iter().zip(out.chunks_exact_mut(2)) {
                out.copy_from_slice(&[(row % 7) as f32, *row as f32]);
            }
            Ok(())
        }
    }

    fn tree(cfg: &TreeConfig, rows: &[u64]) -> Tree {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let env = Env {
            kernels: Kernels::detect(),
            pool: &pool,
            vectors: &Line,
            memory: 1 << 20,
            progress: &|_| {},
            cancel: &std::sync::atomic::AtomicBool::new(false),
        };
        pando_tree::build(cfg, rows, &env).unwrap()
    }

    #[test]
    fn a_row_lost_doubled_or_alone_is_noticed() {
        let cfg =
            TreeConfig { dim: 2, metric: Metric::L2, seed: 1, copies: 2, refine: false, small_limit: 10 };
        let rows: Vec<u64> = (0..2_000).collect();
        let good = tree(&cfg, &rows);
        let all: RowSet = rows.iter().copied().collect();
        let none = RowSet::new();
        let check = |tree: &Tree, dead: &RowSet| {
            let live = &all - dead;
            check_tree(&cfg, tree, dead, live.len(), fingerprint_of(&live))
        };
        let totals = check(&good, &none).unwrap();
        assert_eq!((totals.live, totals.dead_primaries), (2_000, 0));
        let dead: RowSet = [3u64, 4].into_iter().collect();
        assert_eq!(check(&good, &dead).unwrap().dead_primaries, 2);
        assert_eq!(dead_in_leaves(&good, &dead), dead);
        let ids: Vec<u64> = good.leaves.keys().copied().collect();
        let broken: [fn(&mut Tree, &[u64]); 4] = [
            |tree, ids| {
                tree.leaves.get_mut(&ids[0]).unwrap().primaries.pop();
            },
            |tree, ids| {
                let row = tree.leaves[&ids[0]].primaries[0];
                let other = &mut tree.leaves.get_mut(&ids[1]).unwrap().primaries;
                other.insert(other.partition_point(|r| *r < row), row);
            },
            // One row in place of another: the count is right, the fingerprint is not.
            |tree, ids| *tree.leaves.get_mut(&ids[0]).unwrap().primaries.last_mut().unwrap() = 5_000,
            |tree, ids| tree.leaves.get_mut(&ids[0]).unwrap().secondaries.push(6_000),
        ];
        for (i, breakage) in broken.iter().enumerate() {
            let mut tree = good.clone();
            breakage(&mut tree, &ids);
            assert!(check(&tree, &none).is_err(), "breakage {i}");
        }
    }

    /// A tree that is sound in itself, and holds other rows than those that should live: the parent and the plan know.
    #[test]
    fn a_sound_tree_of_other_rows_is_noticed() {
        let cfg =
            TreeConfig { dim: 2, metric: Metric::L2, seed: 1, copies: 2, refine: false, small_limit: 10 };
        let all: RowSet = (0..2_000u64).collect();
        let check = |rows: Vec<u64>| {
            check_tree(&cfg, &tree(&cfg, &rows), &RowSet::new(), all.len(), fingerprint_of(&all))
        };
        check((0..2_000).collect()).unwrap();
        let lost = check((0..1_999).collect()).unwrap_err();
        assert!(format!("{lost:?}").contains("2000 rows live, 1999 of them"), "{lost:?}");
        // As many, but not the same.
        check((1..2_001).collect()).unwrap_err();
        check((0..2_001).collect()).unwrap_err();
    }
}
