//! Tests of the real binary. They start `pando serve` as a process, talk to it over the network as a stranger would, kill
//! it, and look at what it says afterwards. Nothing here links the engine.
//!
//! The binary is `target/<profile>/pando` beside the running test, or `$PANDO_BIN`.

pub mod cli;
pub mod data;
pub mod files;
pub mod flight;
pub mod grpc;
pub mod oracle;
pub mod ports;
pub mod server;

use std::path::PathBuf;

/// A folder that goes away with the test, and a server on `data` in it.
#[derive(Debug)]
pub struct Fixture {
    // Dropped first: the server must be gone before its folder.
    /// The server.
    pub server: server::Server,
    /// The folder.
    pub dir: tempfile::TempDir,
}

impl Fixture {
    /// Starts a server with default options.
    pub fn start() -> Fixture {
        Self::start_with(&server::Options::default())
    }

    /// Starts a server.
    pub fn start_with(options: &server::Options) -> Fixture {
        let dir = tempfile::tempdir().expect("a folder");
        Fixture { server: server::Server::start_with(&dir.path().join("data"), options), dir }
    }

    /// A path in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Kills the server and starts another on the same data.
    pub fn crash_and_restart(self, options: &server::Options) -> Fixture {
        let Fixture { server, dir } = self;
        server.kill();
        Fixture { server: server::Server::start_with(&dir.path().join("data"), options), dir }
    }
}
