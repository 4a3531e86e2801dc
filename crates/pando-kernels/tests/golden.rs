//! The bits of codes, factors and scores of a fixed input, frozen: they are on storage. A failure here means a
//! new algorithm version.

mod common;

use common::cases::{Data, run};
use common::kernel_sets;

const GOLDEN: [(usize, Data, &str); 5] = [
    (1, Data::Gauss, "d3db762805eb5b94925b39a5233e0337"),
    (50, Data::Gauss, "14083942592b1dfa179aa2fe62991f67"),
    (384, Data::Gauss, "4f2c8e6a3d002c6a93a853b6227bb3ce"),
    (1024, Data::Extreme, "9f20d8f08cbc54f2365e5638211ffab2"),
    (1500, Data::Gauss, "9b64e26c536b9786b5300ae877432255"),
];

#[test]
fn bits_are_frozen() {
    let mut wrong = 0;
    for k in kernel_sets() {
        for (d, data, want) in GOLDEN {
            let mut hasher = blake3::Hasher::new();
            for (name, bytes) in run(&k, 42, d, 37, data) {
                hasher.update(name.as_bytes());
                hasher.update(&bytes);
            }
            let got = hasher.finalize().to_hex();
            if &got[..32] != want {
                println!("{k:?} d {d} {data:?}: {}", &got[..32]);
                wrong += 1;
            }
        }
    }
    assert_eq!(wrong, 0);
}
