//! One binary a target, all of this text: the binary's name says which.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use pando_fuzz::{PeakAlloc, Target, target};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

static TARGET: LazyLock<Target> = LazyLock::new(|| target(env!("CARGO_BIN_NAME")));

fuzz_target!(
    // Readers catch the panics of the libraries below them; libfuzzer-sys would end the process at once. One that nobody
    // catches still ends it.
    init: std::panic::set_hook(Box::new(|panic| eprintln!("{panic}"))),
    |input: &[u8]| {
        TARGET.check(&ALLOCATOR, input);
    }
);
