//! The process and the machine: CPU time, memory, bytes on disk, which CPUs are used.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// User and system time of this process, all threads.
pub fn cpu() -> Duration {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

/// Wall and CPU time since a moment.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    wall: Instant,
    cpu: Duration,
}

impl Stopwatch {
    /// Starts.
    pub fn start() -> Self {
        Self { cpu: cpu(), wall: Instant::now() }
    }

    /// Wall and CPU seconds since the start.
    pub fn seconds(&self) -> (f64, f64) {
        let wall = self.wall.elapsed().as_secs_f64();
        (wall, (cpu() - self.cpu).as_secs_f64())
    }
}

/// A value of `/proc/self/status` in megabytes: `VmRSS`, `VmHWM`.
pub fn status_mb(key: &str) -> f64 {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    let kib: f64 = line.and_then(|l| l.split_whitespace().next()?.parse().ok()).unwrap_or_default();
    kib / 1024.0
}

/// Load of the last minute.
pub fn load1() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|t| t.parse().ok()).unwrap_or_default()
}

/// CPUs that this process may use when it starts.
pub fn cpus() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_default();
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
}

/// Binds every thread of this process to the last `n` of `cpus`.
pub fn pin(cpus: &[usize], n: usize) {
    let mut set = CpuSet::new();
    for cpu in &cpus[cpus.len().saturating_sub(n)..] {
        set.set(*cpu);
    }
    for entry in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let id = entry.file_name().to_string_lossy().parse().ok().and_then(Pid::from_raw);
        // A thread may end meanwhile.
        let _ = sched_setaffinity(id, &set);
    }
}

fn files(path: &Path, out: &mut dyn FnMut(&Path, &fs::Metadata)) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        if meta.is_dir() {
            files(&entry.path(), out)?;
        } else {
            out(&entry.path(), &meta);
        }
    }
    Ok(())
}

/// Allocated bytes of the files below a folder, after write-back.
pub fn disk_bytes(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    rustix::fs::sync();
    let mut sum = 0;
    let _ = files(path, &mut |_, meta| sum += meta.blocks() * 512);
    sum
}

/// Drops the page cache of the files below a folder, and of nothing else.
pub fn evict(path: &Path) {
    rustix::fs::sync();
    let _ = files(path, &mut |file, _| {
        if let Ok(file) = fs::File::open(file) {
            let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
        }
    });
}

/// Copies a folder.
pub fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.metadata()?.is_dir() {
            true => copy_folder(&entry.path(), &target)?,
            false => drop(fs::copy(entry.path(), target)?),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_are_plausible() {
        assert!(status_mb("VmRSS") > 1.0 && status_mb("VmHWM") >= status_mb("VmRSS"));
        assert!(!cpus().is_empty());
        let watch = Stopwatch::start();
        let mut x = 0u64;
        while watch.seconds().0 < 0.02 {
            x = std::hint::black_box(x + 1);
        }
        assert!(watch.seconds().1 > 0.001, "busy work takes CPU time");
    }

    #[test]
    fn folders_are_copied_and_counted() {
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path().join("a");
        fs::create_dir_all(from.join("b")).unwrap();
        fs::write(from.join("b/c"), vec![1; 10_000]).unwrap();
        copy_folder(&from, &dir.path().join("z")).unwrap();
        assert_eq!(fs::read(dir.path().join("z/b/c")).unwrap().len(), 10_000);
        assert!(disk_bytes(&from) >= 8192);
    }
}
