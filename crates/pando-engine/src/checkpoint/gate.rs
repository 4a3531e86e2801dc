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
