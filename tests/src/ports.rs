//! Ports for servers under test: below 22000, out of the way of the ephemeral range, and never given to two tests at once.

use std::fs::File;
use std::net::TcpListener;

const FIRST: u16 = 12_000;
const LAST: u16 = 21_998;

/// Two neighbouring ports (gRPC and HTTP), reserved among test processes for as long as this value lives.
#[derive(Debug)]
pub struct Ports {
    /// gRPC and Flight.
    pub grpc: u16,
    /// Metrics and health.
    pub http: u16,
    _lock: File,
}

impl Ports {
    /// Reserves a pair. The lock file keeps other test processes away, the bind keeps foreign servers away.
    pub fn reserve() -> Ports {
        let dir = std::env::temp_dir().join("pando-test-ports");
        std::fs::create_dir_all(&dir).expect("a folder for port locks");
        let pairs = (LAST - FIRST) / 2;
        let start = (std::process::id() % u32::from(pairs)) as u16;
        for i in 0..pairs {
            let grpc = FIRST + 2 * ((start + i) % pairs);
            let lock = File::create(dir.join(grpc.to_string())).expect("a port lock");
            let free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
            if lock.try_lock().is_ok() && free(grpc) && free(grpc + 1) {
                return Ports { grpc, http: grpc + 1, _lock: lock };
            }
        }
        panic!("no free pair of ports between {FIRST} and {LAST}");
    }
}
