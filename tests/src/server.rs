//! A `pando serve` process.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::ports::Ports;

/// Where the binary under test lies.
pub fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("PANDO_BIN") {
        return path.into();
    }
    // target/<profile>/deps/<this test>
    let mut path = std::env::current_exe().expect("own path");
    path.pop();
    path.pop();
    path.push("pando");
    assert!(
        path.exists(),
        "{} is missing: run `cargo nextest run -p pando -p pando-tests`, or `cargo build -p pando` first",
        path.display()
    );
    path
}

/// How a server is started.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// `PANDO_SIMD`.
    pub simd: Option<String>,
    /// `--threads`.
    pub threads: Option<usize>,
    /// `--auto-compact`; off unless said, so that a test decides when roots are made.
    pub auto_compact: bool,
    /// `--compactor-memory`.
    pub compactor_memory: Option<String>,
    /// `--cache-memory`.
    pub cache_memory: Option<String>,
}

/// A running server. Dropped, it is killed.
#[derive(Debug)]
pub struct Server {
    child: Child,
    ports: Option<Ports>,
    log: PathBuf,
}

impl Server {
    /// Starts on `data_dir` with default options and waits until it is ready.
    pub fn start(data_dir: &Path) -> Server {
        Self::start_with(data_dir, &Options::default())
    }

    /// Starts on `data_dir` and waits until it is ready. The server's log is beside the folder.
    pub fn start_with(data_dir: &Path, options: &Options) -> Server {
        let mut server = Self::spawn(data_dir, options);
        if let Err(why) = server.wait_ready(Duration::from_secs(60)) {
            panic!("the server did not start: {why}\n{}", server.log_tail());
        }
        server
    }

    /// Starts without waiting.
    pub fn spawn(data_dir: &Path, options: &Options) -> Server {
        let ports = Ports::reserve();
        let log = data_dir.with_extension("log");
        let file = std::fs::File::options().create(true).append(true).open(&log).expect("a log file");
        let mut command = Command::new(binary());
        command
            .arg("serve")
            .arg("--data-dir")
            .arg(data_dir)
            .args(["--listen", &format!("127.0.0.1:{}", ports.grpc)])
            .args(["--http", &format!("127.0.0.1:{}", ports.http)])
            .args(["--auto-compact", if options.auto_compact { "true" } else { "false" }])
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("a second handle"))
            .stderr(file);
        if let Some(simd) = &options.simd {
            command.env("PANDO_SIMD", simd);
        }
        if let Some(threads) = options.threads {
            command.args(["--threads", &threads.to_string()]);
        }
        if let Some(memory) = &options.compactor_memory {
            command.args(["--compactor-memory", memory]);
        }
        if let Some(memory) = &options.cache_memory {
            command.args(["--cache-memory", memory]);
        }
        let child = command.spawn().expect("pando serve starts");
        Server { child, ports: Some(ports), log }
    }

    /// Waits for `/readyz`; an error when the process ends first or time is up.
    pub fn wait_ready(&mut self, limit: Duration) -> Result<(), String> {
        let start = Instant::now();
        while start.elapsed() < limit {
            if let Some(status) = self.child.try_wait().expect("wait") {
                return Err(format!("it ended with {status}"));
            }
            if http_get(self.ports().http, "/readyz").is_some_and(|(status, _)| status == 200) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err(format!("not ready after {limit:?}"))
    }

    fn ports(&self) -> &Ports {
        self.ports.as_ref().expect("a server has ports")
    }

    /// `http://127.0.0.1:<port>`, for `--server` and gRPC clients.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports().grpc)
    }

    /// Status and body of a GET on the HTTP port.
    pub fn http(&self, path: &str) -> Option<(u16, String)> {
        http_get(self.ports().http, path)
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// kill -9, and waits until the process is gone.
    pub fn kill(mut self) {
        self.child.kill().expect("kill -9");
        self.child.wait().expect("wait");
    }

    /// SIGTERM; the server must end by itself with status 0 within a minute.
    pub fn stop(mut self) {
        let status = Command::new("kill").arg(self.pid().to_string()).status().expect("kill");
        assert!(status.success());
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("wait") {
                assert!(
                    status.success(),
                    "after SIGTERM the server ended with {status}\n{}",
                    self.log_tail()
                );
                return;
            }
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "SIGTERM did not end the server\n{}",
                self.log_tail()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// `VmRSS` of the process in bytes.
    pub fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap_or_default();
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap_or("0 kB");
        line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap_or(0) << 10
    }

    /// The last lines that it wrote.
    pub fn log_tail(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// Whether the process lives.
    pub fn alive(&mut self) -> bool {
        self.child.try_wait().expect("wait").is_none()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- server log ---\n{}", self.log_tail());
        }
    }
}

/// Asks for `path` over HTTP/1.1 on the loopback interface.
fn http_get(port: u16, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let status = text.split(' ').nth(1)?.parse().ok()?;
    let body = text.split_once("\r\n\r\n")?.1.to_owned();
    Some((status, body))
}

/// Copies a data directory of a stopped server.
pub fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a data directory") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), &target).expect("a copy");
        }
    }
}

/// Files below `dir` whose path (relative, with `/`) contains `part`.
pub fn files_with(dir: &Path, part: &str) -> Vec<PathBuf> {
    fn walk(dir: &Path, out: &mut Vec<PathBuf>) {
        // A folder may vanish while the server works in it.
        let Ok(entries) = std::fs::read_dir(dir) else { return };
        for entry in entries.flatten() {
            let path = entry.path();
            if path.is_dir() { walk(&path, out) } else { out.push(path) }
        }
    }
    let mut all = Vec::new();
    walk(dir, &mut all);
    all.retain(|p| p.to_string_lossy().contains(part));
    all.sort();
    all
}
