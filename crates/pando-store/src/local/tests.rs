use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::*;

const KEY: &str = "a/b/c";

fn dir() -> (tempfile::TempDir, LocalDir) {
    let temp = tempfile::tempdir().unwrap();
    let local = LocalDir::new(DataDir::open(temp.path()).unwrap());
    (temp, local)
}

fn bytes(text: &'static str) -> [Bytes; 1] {
    [Bytes::from_static(text.as_bytes())]
}

#[test]
fn a_reader_waits_until_the_name_is_durable() {
    let (_temp, local) = dir();
    let local = Arc::new(local);
    local.create(KEY, bytes("x").iter()).unwrap();
    let path = local.locate(KEY).unwrap().1;
    // As if a create were between its link and its sync.
    let publishing = local.pending.begin(&path);
    let reader = {
        let local = Arc::clone(&local);
        thread::spawn(move || local.open(KEY).map(|o| o.meta.len()))
    };
    thread::sleep(Duration::from_millis(50));
    assert!(!reader.is_finished(), "read what may not last");
    assert!(local.open("a/b/other").is_err(), "other objects are not held up");
    drop(publishing);
    assert_eq!(reader.join().unwrap().unwrap(), 1);
}

#[test]
fn after_a_failed_sync_nothing_is_believed() {
    let (_temp, local) = dir();
    local.create(KEY, bytes("x").iter()).unwrap();
    local.fail_for_test();
    let error = local.open(KEY).err().unwrap();
    assert!(matches!(error, LocalError::Failed));
    assert_eq!(error.read_kind(), ErrorKind::Unavailable);
    let error = local.create("a/b/d", bytes("y").iter()).unwrap_err();
    assert_eq!(error.create_kind(), ErrorKind::Unavailable, "refused before it was tried");
}

#[test]
fn a_create_whose_sync_failed_is_unclear() {
    let error = LocalError::MaybeApplied { what: "sync the directory", source: io::Error::other("disk") };
    assert_eq!(error.create_kind(), ErrorKind::Unclear);
    let error = LocalError::NotApplied { what: "write the file", source: io::Error::other("full") };
    assert_eq!(error.create_kind(), ErrorKind::Unavailable);
}

#[test]
fn names_cannot_leave_the_directory() {
    let (_temp, local) = dir();
    for bad in ["", "/", "..", "../x", "a/../b", "a//b", "/etc/passwd", ".hidden", "a/.b", "a#1", "a\0b", "ä"]
    {
        assert!(matches!(local.create(bad, bytes("x").iter()), Err(LocalError::BadName)), "{bad:?}");
        assert!(matches!(local.open(bad), Err(LocalError::BadName)), "{bad:?}");
    }
}

#[test]
fn temporary_files_do_not_stay() {
    let (temp, local) = dir();
    let temps = || std::fs::read_dir(temp.path().join("tmp")).unwrap().count();
    local.create(KEY, bytes("x").iter()).unwrap();
    local.create(KEY, bytes("y").iter()).unwrap();
    local.replace(KEY, bytes("z").iter()).unwrap();
    drop(local.data_dir().temp_file().unwrap());
    assert_eq!(temps(), 0);
}

#[test]
fn a_directory_in_an_objects_place_is_not_an_object() {
    let (_temp, local) = dir();
    local.create("a/b/c/d", bytes("x").iter()).unwrap();
    assert!(matches!(local.open("a/b/c"), Err(LocalError::NotFound)));
    assert!(matches!(local.open("a/b/c/d/e"), Err(LocalError::NotFound)));
    assert!(local.create("a/b/c/d/e", bytes("x").iter()).is_err());
}

#[test]
fn objects_stay_open_until_they_change() {
    let (_temp, local) = dir();
    let read = |opened: &Opened| opened.read_range(0..10).unwrap();
    local.create(KEY, bytes("x").iter()).unwrap();
    assert!(local.kept_open(KEY).is_none(), "nobody has read a part of it");
    let first = local.open_to_stay(KEY).unwrap();
    assert!(Arc::ptr_eq(&first, &local.kept_open(KEY).unwrap()));
    local.replace(KEY, bytes("yy").iter()).unwrap();
    assert!(local.kept_open(KEY).is_none());
    assert_eq!(&read(&local.open_to_stay(KEY).unwrap())[..], b"yy");
    local.remove(KEY).unwrap();
    assert!(local.kept_open(KEY).is_none());
    assert!(matches!(local.open_to_stay(KEY), Err(LocalError::NotFound)));
    local.fail_for_test();
    assert!(matches!(local.open_to_stay(KEY), Err(LocalError::Failed)));
}

#[test]
fn what_was_opened_before_a_change_does_not_stay() {
    let (_temp, local) = dir();
    local.create(KEY, bytes("x").iter()).unwrap();
    let changes = local.handles.changes();
    let opened = Arc::new(local.open(KEY).unwrap());
    local.replace(KEY, bytes("y").iter()).unwrap();
    local.handles.keep(KEY, &opened, changes);
    assert!(local.kept_open(KEY).is_none());
}

#[test]
fn few_objects_stay_open() {
    let (_temp, local) = dir();
    local.create(KEY, bytes("x").iter()).unwrap();
    for i in 0..100 {
        let key = format!("a/b/{i}");
        local.create(&key, bytes("x").iter()).unwrap();
        local.open_to_stay(&key).unwrap();
        local.open_to_stay(KEY).unwrap();
    }
    assert_eq!(local.handles.len(), 64);
    assert!(local.kept_open(KEY).is_some() && local.kept_open("a/b/0").is_none());
}

#[test]
#[cfg(target_os = "linux")]
fn reads_that_do_not_wait_are_whole_or_nothing() {
    let (_temp, local) = dir();
    local.create(KEY, bytes("0123456789").iter()).unwrap();
    let opened = local.open_to_stay(KEY).unwrap();
    let mut buf = [0; 4];
    // A file system that cannot tell says no; ext4, xfs, btrfs and newer tmpfs can.
    if opened.read_from_memory(3, &mut buf) {
        assert_eq!(&buf, b"3456");
    }
    assert!(!opened.read_from_memory(8, &mut buf), "past the end");
}
