//! A local directory: the suite, the lock, and what is found at a start.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::TryStreamExt;
use pando_store::{CreateOutcome, ErrorKind, Folder, Key, ObjectKind, Store, StoreOptions, conformance};
use uuid::Uuid;

fn open(dir: &Path) -> Store {
    Store::open_local(dir, StoreOptions::default()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn local_directory_passes_the_suite() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    assert!(store.sole_owner());
    conformance::run(&store).await;
    assert_eq!(std::fs::read_dir(dir.path().join("tmp")).unwrap().count(), 0, "temporary files are left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn memory_passes_the_suite() {
    let store = Store::in_memory();
    assert!(!store.sole_owner());
    conformance::run(&store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_prefix_and_a_data_directory_pass_the_suite() {
    let dir = tempfile::tempdir().unwrap();
    let data = pando_store::DataDir::open(dir.path()).unwrap();
    let objects = Arc::new(object_store::memory::InMemory::new());
    let store = Store::new(objects.clone(), "team/pando", Some(data), StoreOptions::default()).unwrap();
    conformance::run(&store).await;
    // Another prefix of the same bucket is another store.
    let other = Store::new(objects, "team/other", None, StoreOptions::default()).unwrap();
    assert_eq!(other.list(&Folder::All).try_collect::<Vec<_>>().await.unwrap(), []);
    assert!(other.list_names().await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_wrapped_directory_passes_the_suite() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open_local_wrapped(dir.path(), StoreOptions::default(), |inner| inner).unwrap();
    assert!(!store.sole_owner());
    conformance::run(&store).await;
}

#[test]
fn a_second_handle_is_refused_and_told_by_whom() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path());
    let error = Store::open_local(dir.path(), StoreOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked);
    assert_eq!(error.owner_pid(), Some(std::process::id()));
    let text = error.to_string();
    assert!(text.contains(&std::process::id().to_string()), "{text}");
    assert!(!text.contains(dir.path().to_str().unwrap()), "{text} shows a path");
    let clone = first.clone();
    drop(first);
    assert!(Store::open_local(dir.path(), StoreOptions::default()).is_err(), "a clone still holds it");
    drop(clone);
    open(dir.path());
}

/// Not a test of its own: the body of the second process below.
#[test]
fn child_holds_the_directory() {
    let Some(dir) = std::env::var_os("PANDO_TEST_LOCK_DIR") else { return };
    let store = open(&PathBuf::from(dir));
    store.data_dir().unwrap().temp_file().map(std::mem::forget).unwrap();
    println!("locked");
    std::io::stdout().flush().unwrap();
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn kill_9_releases_the_lock() {
    use std::io::{BufRead, BufReader};
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_holds_the_directory", "--nocapture"])
        .env("PANDO_TEST_LOCK_DIR", dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    assert!(out.lines().any(|line| line.unwrap().contains("locked")));

    let error = Store::open_local(dir.path(), StoreOptions::default()).unwrap_err();
    assert_eq!((error.kind(), error.owner_pid()), (ErrorKind::Locked, Some(child.id())));
    assert_eq!(std::fs::read_dir(dir.path().join("tmp")).unwrap().count(), 1, "not ours to clean");

    child.kill().unwrap(); // SIGKILL
    child.wait().unwrap();
    open(dir.path());
    assert_eq!(std::fs::read_dir(dir.path().join("tmp")).unwrap().count(), 0, "a dead process's files go");
}

/// CASES H31: strays of every sort do not stop the start and are not taken for objects.
#[tokio::test]
async fn strays_are_ignored() {
    let dir = tempfile::tempdir().unwrap();
    let uuid = Uuid::new_v4();
    let kept = Key::Log { uuid, sequence: 1 };
    {
        let store = open(dir.path());
        store.create_if_absent(&kept, Bytes::from_static(b"entry")).await.unwrap();
        store
            .create_if_absent(&Key::Name { name: "a".into(), n: 1 }, Bytes::from_static(b"n"))
            .await
            .unwrap();
    }
    let objects = dir.path().join("store");
    let log = objects.join(format!("{uuid}/0/log"));
    std::fs::write(dir.path().join(".tmpX"), b"junk").unwrap();
    std::fs::write(dir.path().join("tmp/left over"), b"junk").unwrap();
    for place in [dir.path(), &dir.path().join("tmp"), &objects, &objects.join("names"), &log] {
        std::fs::create_dir(place.join("lost+found")).unwrap();
        std::fs::write(place.join(".tmpY"), b"junk").unwrap();
        std::fs::write(place.join("00000000000000000002#1"), b"junk").unwrap();
    }
    use std::os::unix::ffi::OsStrExt;
    std::fs::write(log.join(std::ffi::OsStr::from_bytes(b"\xff\xfe")), b"junk").unwrap();
    std::os::unix::fs::symlink("/nowhere", log.join("00000000000000000009")).unwrap();

    let store = open(dir.path());
    store.probe().await.unwrap();
    let listed: Vec<_> = store.list(&Folder::Log(uuid)).try_collect().await.unwrap();
    assert_eq!(listed.into_iter().map(|l| l.key).collect::<Vec<_>>(), [kept]);
    let all: Vec<_> = store.list(&Folder::All).try_collect().await.unwrap();
    assert_eq!(all.len(), 2);
    assert_eq!(store.list_names().await.unwrap(), ["a"]);
    let next = Key::Log { uuid, sequence: 2 };
    let outcome = store.create_if_absent(&next, Bytes::from_static(b"second")).await.unwrap();
    assert_eq!(outcome, CreateOutcome::Created);
}

/// CASES H31: truncated and empty objects are short, never wrong.
#[tokio::test]
async fn torn_objects_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let key = Key::Pack { uuid: Uuid::new_v4(), depth: 1, hash: [7; 32] };
    let bytes = Bytes::from(vec![5u8; 1000]);
    store.put_content_addressed(&key, bytes.clone()).await.unwrap();
    let file = dir.path().join("store").join(key.path());
    let hash = *blake3::hash(&bytes).as_bytes();
    for len in [999, 500, 1, 0] {
        std::fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(len).unwrap();
        assert_eq!(store.get_range(&key, 0..1000).await.unwrap_err().kind(), ErrorKind::TooShort);
        assert_eq!(store.get_block(&key, 0, 1000, &hash).await.unwrap_err().kind(), ErrorKind::TooShort);
        assert_eq!(store.get(&key).await.unwrap().len() as u64, len);
    }
    // The next checkpoint that comes by repairs it.
    let mut writer = store.writer(ObjectKind::Pack).unwrap();
    writer.write(&bytes).await.unwrap();
    writer.finish(&key).await.unwrap();
    assert_eq!(store.get_block(&key, 0, 1000, &hash).await.unwrap(), bytes);
}

#[tokio::test]
async fn counters_tell_requests_and_bytes_by_kind() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let uuid = Uuid::new_v4();
    let key = Key::Log { uuid, sequence: 1 };
    store.create_if_absent(&key, Bytes::from(vec![0; 300])).await.unwrap();
    store.create_if_absent(&key, Bytes::from(vec![0; 300])).await.unwrap();
    store.get(&key).await.unwrap();
    store.get_ranges(&key, &[0..10, 20..40]).await.unwrap();
    store.try_head(&Key::Head { uuid, generation: 1 }).await.unwrap();
    let counters = store.counters();
    let log = counters.of(ObjectKind::Log);
    assert_eq!((log.creates, log.gets, log.bytes_written, log.bytes_read), (2, 2, 300, 330));
    assert_eq!(counters.of(ObjectKind::Head).heads, 1);
    assert_eq!(counters.total().requests(), 5);
    assert_eq!((counters.total().errors, counters.total().retries), (0, 0));
}

#[test]
fn errors_do_not_show_the_inside() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, b"").unwrap();
    let error = Store::open_local(&file, StoreOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(!error.to_string().contains("file"), "{error}");
    assert!(error.internal().contains("file"));
}
