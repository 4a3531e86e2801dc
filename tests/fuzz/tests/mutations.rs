//! Every target on its seeds, on the corpora that are kept, and on mutations of both.
//!
//! A third of a second each; `PANDO_FUZZ_SECONDS=60` runs each for that long, `PANDO_FUZZ_TARGET=file_npy` one alone. What
//! fails is stored in `fuzz/corpus/<target>/`, and is run from then on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use pando_fuzz::{Mutator, PeakAlloc, Target, corpus, corpus_folder, targets};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

fn run(target: &Target, input: &[u8]) -> Result<bool, String> {
    let outcome = catch_unwind(AssertUnwindSafe(|| target.check(&ALLOCATOR, input)));
    outcome.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or(panic.downcast_ref::<&str>().map(|text| text.to_string())).unwrap_or_default();
        let name = format!("found-{:016x}", crc(input));
        let folder = corpus_folder(&target.name);
        let _ = std::fs::create_dir_all(&folder);
        let _ = std::fs::write(folder.join(&name), input);
        format!("{} with {name} ({} bytes): {text}", target.name, input.len())
    })
}

fn crc(input: &[u8]) -> u64 {
    input
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// Every second target, one after the other: memory is counted for the whole process.
fn mutations_of_half(half: usize) {
    let seconds = std::env::var("PANDO_FUZZ_SECONDS").map_or(0.3, |text| text.parse().expect("a number"));
    let only = std::env::var("PANDO_FUZZ_TARGET").ok();
    let start = std::env::var("PANDO_FUZZ_SEED").map_or(1, |text| text.parse().expect("a number"));
    // Readers catch the panics of the libraries below them; these are no news.
    std::panic::set_hook(Box::new(|_| {}));
    let mut wrong = Vec::new();
    let mut all = 0;
    let targets = targets();
    let mine = targets.iter().enumerate().filter(|(at, _)| at % 2 == half).map(|(_, target)| target);
    for target in mine.filter(|target| only.as_ref().is_none_or(|only| *only == target.name)) {
        let mut seeds = target.seeds.clone();
        seeds.extend(corpus(&target.name));
        wrong.extend(seeds.iter().filter_map(|seed| run(target, seed).err()));
        let mut mutator = Mutator(start);
        let begun = Instant::now();
        let mut inputs = 0;
        while begun.elapsed() < Duration::from_secs_f64(seconds) {
            let input = mutator.input(&seeds);
            inputs += 1;
            if let Err(text) = run(target, &input) {
                wrong.push(text);
                break;
            }
        }
        all += inputs;
        if seconds > 1.0 {
            eprintln!("{}: {inputs} inputs", target.name);
        }
    }
    let _ = std::panic::take_hook();
    eprintln!("{all} inputs");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

// Two processes, one for each core of CI.
#[test]
fn mutations_of_one_half() {
    mutations_of_half(0);
}

#[test]
fn mutations_of_the_other_half() {
    mutations_of_half(1);
}

/// Each seed is read to its end: the targets reach what they are for.
#[test]
fn seeds_are_well_formed() {
    for target in targets() {
        assert!(target.seeds.iter().all(|seed| (target.run)(seed)), "{}", target.name);
    }
}

/// libFuzzer has a binary for each target, and for nothing else.
#[test]
fn every_target_has_a_binary() {
    let manifest = include_str!("../../../fuzz/Cargo.toml");
    let binaries: Vec<&str> =
        manifest.split("[[bin]]").skip(1).map(|binary| binary.split('"').nth(1).expect("its name")).collect();
    let targets = targets();
    assert_eq!(binaries, targets.iter().map(|target| target.name.as_str()).collect::<Vec<_>>());
}
