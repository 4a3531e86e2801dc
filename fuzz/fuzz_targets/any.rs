//! One binary a target, all of this text: the binary's name says which.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use pando_fuzz::{PeakAlloc, Target, target};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

static TARGET: LazyLock<Target> = LazyLock::new(|| target(env!("CARGO_BIN_NAME")));

/// Well-formed inputs to start from, written before libFuzzer reads its folders.
fn write_seeds() {
    let Some(folder) = std::env::var_os("PANDO_FUZZ_SEEDS") else { return };
    for (at, seed) in TARGET.seeds.iter().enumerate() {
        let file = std::path::Path::new(&folder).join(format!("seed-{at}"));
        std::fs::write(file, seed).expect("the folder of the seeds");
    }
}

fuzz_target!(
    init: {
        // Readers catch the panics of the libraries below them; libfuzzer-sys would end the process at once. One that
        // nobody catches still ends it.
        std::panic::set_hook(Box::new(|panic| eprintln!("{panic}")));
        write_seeds();
    },
    |input: &[u8]| {
        TARGET.check(&ALLOCATOR, input);
    }
);
