//! Fixed seeds of the simulation, and as many as are asked for.
//!
//! `PANDO_SIM_SEEDS=1000..3000` runs those; `PANDO_SIM_SEED=1234` runs one and prints every request. With `PANDO_SIM_STOP` the
//! first seed that ends wrong is the last one that is run.

use std::ops::Range;
use std::time::Instant;

use pando_sim::{Ending, simulate};

fn command(seed: u64) -> String {
    format!("PANDO_SIM_SEED={seed} cargo nextest run -p pando-sim one_seed --no-capture")
}

fn run(seed: u64) -> Result<Ending, String> {
    let ending = simulate(seed, false);
    if ending.wrong.is_empty() {
        return Ok(ending);
    }
    Err(format!("seed {seed}:\n  {}\n  repeat it: {}\n{ending:?}", ending.wrong.join("\n  "), command(seed)))
}

fn all(seeds: impl Iterator<Item = u64>) {
    let (mut wrong, started, mut requests, mut n) = (Vec::new(), Instant::now(), 0, 0);
    for seed in seeds {
        n += 1;
        match run(seed) {
            Ok(ending) => requests += ending.requests,
            Err(text) => {
                eprintln!("{text}");
                wrong.push(seed);
                if std::env::var_os("PANDO_SIM_STOP").is_some() {
                    break;
                }
            }
        }
    }
    eprintln!("{n} seeds, {requests} requests, {:.1} s", started.elapsed().as_secs_f64());
    assert!(wrong.is_empty(), "seeds {wrong:?} ended wrong");
}

#[test]
fn fixed_seeds() {
    all(0..30);
}

#[test]
fn same_seed_same_ending() {
    one_ending(0..15);
}

/// Runs each seed twice.
fn one_ending(seeds: impl Iterator<Item = u64>) {
    let mut several = Vec::new();
    for seed in seeds {
        let (first, second) = (simulate(seed, false), simulate(seed, false));
        if first != second {
            eprintln!("seed {seed} has two endings:\n{first:?}\n{second:?}");
            several.push(seed);
        }
    }
    assert!(several.is_empty(), "seeds {several:?} have several endings");
}

#[test]
fn one_seed() {
    let Ok(seed) = std::env::var("PANDO_SIM_SEED") else {
        return eprintln!("skipped: PANDO_SIM_SEED is not set");
    };
    let ending = simulate(seed.parse().expect("a number"), true);
    eprintln!("{ending:#?}");
    assert!(ending.wrong.is_empty(), "{:?}", ending.wrong);
}

fn asked_for() -> Option<Range<u64>> {
    let Ok(seeds) = std::env::var("PANDO_SIM_SEEDS") else {
        eprintln!("skipped: PANDO_SIM_SEEDS is not set");
        return None;
    };
    let (from, to) = seeds.split_once("..").expect("from..to");
    Some(from.parse().expect("a number")..to.parse().expect("a number"))
}

#[test]
fn many_seeds() {
    asked_for().into_iter().for_each(all);
}

#[test]
fn many_seeds_twice() {
    asked_for().into_iter().for_each(one_ending);
}
