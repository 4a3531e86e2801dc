//! Second copies (SOAR): where the first is likely to be missed.

mod common;

use common::{Model, Rows, clustered, config};
use pando_kernels::Metric;

/// A row that is not in its nearest leaf has its copy there, so that a query equal to it finds it in the first leaf that it
/// looks at. Only a leaf that is full of such copies turns one away.
#[test]
fn a_row_outside_its_nearest_leaf_is_copied_there() {
    for metric in [Metric::L2, Metric::Cosine, Metric::Dot] {
        // Few elements and wide clusters: leaves meet in many places, and balancing leaves rows on the far side.
        let rows = Rows::new(6, |row| clustered(row, 6, 8, 1.5));
        let mut model = Model::new(config(6, metric), rows);
        model.checkpoint(6_000, &[]);
        let tree = model.tree.as_ref().unwrap();
        let strays = model.strays(1).0;
        let (mut copied, mut turned_away) = (0, 0);
        for (row, nearest) in &strays {
            let leaf = &tree.leaves[nearest];
            if leaf.secondaries.binary_search(row).is_ok() {
                copied += 1;
            } else {
                assert_eq!(
                    leaf.secondaries.len(),
                    leaf.primaries.len(),
                    "{metric}: row {row} of leaf {nearest}"
                );
                turned_away += 1;
            }
        }
        assert!(
            copied > 30 && turned_away * 10 < copied,
            "{metric}: {copied} copied, {turned_away} turned away"
        );
    }
}
