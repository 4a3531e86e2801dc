//! Time of durable creates and of reads on a local directory, beside `object_store`'s own backend with fsync.
//! `cargo run --release -p pando-store --example local_latency -- DIR`

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use object_store::local::LocalFileSystem;
use pando_store::{Key, Store, StoreOptions};
use uuid::Uuid;

const ROUNDS: u64 = 300;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = PathBuf::from(std::env::args().nth(1).ok_or("usage: local_latency DIR")?);
    let ours = Store::open_local(&dir.join("ours"), StoreOptions::default())?;
    let path = dir.join("theirs");
    std::fs::create_dir_all(&path)?;
    let backend = Arc::new(LocalFileSystem::new_with_prefix(&path)?.with_fsync(true));
    let theirs = Store::new(backend, "", None, StoreOptions::default())?;
    for (name, store) in [("pando", ours), ("object_store", theirs)] {
        measure(name, &store).await?;
    }
    Ok(())
}

async fn measure(name: &str, store: &Store) -> Result<(), Box<dyn std::error::Error>> {
    let uuid = Uuid::new_v4();
    let body = Bytes::from(vec![7u8; 4096]);
    let (mut create, mut get, mut head, mut block) = (vec![], vec![], vec![], vec![]);
    let hash = *blake3::hash(&body).as_bytes();
    for sequence in 1..=ROUNDS {
        let key = Key::Log { uuid, sequence };
        let start = Instant::now();
        store.create_if_absent(&key, body.clone()).await?;
        create.push(start.elapsed());
    }
    for sequence in 1..=ROUNDS {
        let key = Key::Log { uuid, sequence };
        let start = Instant::now();
        store.get(&key).await?;
        get.push(start.elapsed());
        let start = Instant::now();
        store.head(&key).await?;
        head.push(start.elapsed());
        let start = Instant::now();
        store.get_block(&key, 0, 4096, &hash).await?;
        block.push(start.elapsed());
    }
    for (what, times) in [("create 4 KiB", create), ("get", get), ("head", head), ("get_block", block)] {
        let (p50, p99) = (percentile(times.clone(), 50), percentile(times, 99));
        println!("{name:13} {what:13} p50 {p50:>10.1?}  p99 {p99:>10.1?}");
    }
    Ok(())
}

fn percentile(mut times: Vec<Duration>, p: usize) -> Duration {
    times.sort_unstable();
    times[(times.len() - 1) * p / 100]
}
