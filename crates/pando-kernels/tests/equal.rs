//! Every kernel set gives the bits of the scalar one.

mod common;

use common::cases::{DATA, Data, run};
use common::kernel_sets;
use proptest::prelude::*;

fn compare(seed: u64, d: usize, rows: usize, data: Data) {
    let sets = kernel_sets();
    let expected = run(&sets[0], seed, d, rows, data);
    for k in &sets[1..] {
        for ((name, want), (_, got)) in expected.iter().zip(run(k, seed, d, rows, data)) {
            assert!(
                *want == got,
                "{name} of {k:?} differs from scalar: seed {seed}, d {d}, rows {rows}, {data:?}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn kernel_sets_agree(seed in any::<u64>(), d in 1usize..=1536, rows in 2usize..=40, data in 0..DATA.len()) {
        compare(seed, d, rows, DATA[data]);
    }
}

#[test]
fn kernel_sets_agree_at_the_edges() {
    for d in [1, 2, 3, 7, 8, 9, 63, 64, 65, 127, 128, 129, 192, 384, 1024, 1088, 2112] {
        for data in DATA {
            compare(d as u64, d, 34, data);
        }
    }
    for rows in [2, 3, 31, 32, 33, 64, 65, 97] {
        compare(rows as u64, 96, rows, Data::Gauss);
    }
    for d in [4096, 9999, 16_384] {
        compare(d as u64, d, 3, Data::Gauss);
        compare(d as u64, d, 2, Data::Extreme);
    }
}
