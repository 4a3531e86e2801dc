//! Compares every kernel set with the scalar one on fixed cases, without threads or files: the program that runs
//! under the emulator (see README.md).

#[path = "../tests/common/mod.rs"]
mod common;

use common::cases::{DATA, Data, run};
use common::kernel_sets;

fn main() {
    let sets = kernel_sets();
    println!("sets: {sets:?}");
    let mut cases = Vec::new();
    for (i, d) in
        [1, 2, 3, 15, 16, 17, 63, 64, 65, 100, 127, 129, 200, 384, 700, 1024, 1100].into_iter().enumerate()
    {
        cases.push((d, 34, Data::Gauss));
        cases.push((d, 20, DATA[i % DATA.len()]));
    }
    for rows in [2, 3, 5, 16, 31, 32, 33, 47, 64, 65, 97] {
        cases.push((80, rows, Data::Gauss));
    }
    cases.extend([
        (1500, 7, Data::Extreme),
        (2112, 5, Data::Gauss),
        (4096, 3, Data::Gauss),
        (16_384, 2, Data::Gauss),
    ]);
    let mut wrong = 0;
    for (i, (d, rows, data)) in cases.iter().copied().enumerate() {
        let want = run(&sets[0], i as u64, d, rows, data);
        for k in &sets[1..] {
            for ((name, want), (_, got)) in want.iter().zip(run(k, i as u64, d, rows, data)) {
                if *want != got {
                    println!("WRONG {k:?} {name}: d {d} rows {rows} {data:?}");
                    wrong += 1;
                }
            }
        }
        println!("case {i} d {d} rows {rows} {data:?} done");
    }
    println!("{} cases, {wrong} wrong, sets {sets:?}", cases.len());
    std::process::exit(i32::from(wrong > 0));
}
