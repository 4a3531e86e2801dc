//! What every store must do, as functions for tests. Each works in a fresh collection of its own, so that the suite
//! can run on a store that holds other things.

use std::ops::Range;

use bytes::Bytes;
use futures::TryStreamExt;
use uuid::Uuid;

use crate::{CreateOutcome, ErrorKind, Folder, Key, ObjectKind, PutOutcome, Series, Store};

/// Runs the whole suite.
pub async fn run(store: &Store) {
    store.probe().await.expect("the store honours exclusive create");
    reads_give_what_was_written(store).await;
    creates_are_exclusive(store).await;
    racing_creators_have_one_winner(store, 50, 16).await;
    ranges_are_whole_or_errors(store).await;
    blocks_are_verified(store).await;
    content_addressed_puts_repeat_and_repair(store).await;
    writers_stream_and_publish(store).await;
    deletes_may_repeat(store).await;
    listings_give_keys(store).await;
    names_are_listed(store).await;
    the_newest_is_found_from_any_hint(store).await;
}

/// Whole reads, sizes and times; absence is its own answer.
pub async fn reads_give_what_was_written(store: &Store) {
    let uuid = Uuid::new_v4();
    for (i, len) in [0usize, 1, 4096, 1 << 20, (8 << 20) + 1].into_iter().enumerate() {
        let key = Key::Log { uuid, sequence: i as u64 + 1 };
        assert_eq!(store.try_get(&key).await.unwrap(), None);
        assert_eq!(store.try_head(&key).await.unwrap(), None);
        assert_eq!(store.get(&key).await.unwrap_err().kind(), ErrorKind::NotFound);
        let bytes = content(len, i as u8);
        assert_eq!(store.create_if_absent(&key, bytes.clone()).await.unwrap(), CreateOutcome::Created);
        assert_eq!(store.get(&key).await.unwrap(), bytes);
        assert_eq!(store.head(&key).await.unwrap().size, len as u64);
    }
    // A head over its limit is not read: something else must have put it there.
    let key = Key::Head { uuid, generation: 1 };
    let huge = content(ObjectKind::Head.max_whole_read() as usize + 1, 0);
    store.create_if_absent(&key, huge).await.unwrap();
    assert_eq!(store.get(&key).await.unwrap_err().kind(), ErrorKind::Corrupt);
}

/// The second create changes nothing and says so.
pub async fn creates_are_exclusive(store: &Store) {
    let key = Key::Head { uuid: Uuid::new_v4(), generation: 1 };
    let (first, second) = (content(100, 1), content(2000, 2));
    assert_eq!(store.create_if_absent(&key, first.clone()).await.unwrap(), CreateOutcome::Created);
    assert_eq!(store.create_if_absent(&key, second).await.unwrap(), CreateOutcome::Exists);
    assert_eq!(store.create_if_absent(&key, first.clone()).await.unwrap(), CreateOutcome::Exists);
    assert_eq!(store.get(&key).await.unwrap(), first);
}

/// Of many creators at once exactly one succeeds, and what it wrote is there, whole, for all of them.
pub async fn racing_creators_have_one_winner(store: &Store, rounds: u64, creators: u8) {
    let uuid = Uuid::new_v4();
    for round in 1..=rounds {
        let key = Key::Log { uuid, sequence: round };
        let tasks: Vec<_> = (0..creators)
            .map(|i| {
                let (store, key) = (store.clone(), key.clone());
                tokio::spawn(async move {
                    let outcome =
                        store.create_if_absent(&key, content(3000 + usize::from(i), i)).await.unwrap();
                    (i, outcome, store.get(&key).await.unwrap())
                })
            })
            .collect();
        let mut winner = None;
        let mut seen = Vec::new();
        for task in tasks {
            let (i, outcome, read) = task.await.unwrap();
            if outcome == CreateOutcome::Created {
                assert_eq!(winner.replace(i), None, "two winners in round {round}");
            }
            seen.push(read);
        }
        let winner = winner.expect("a winner");
        let expected = content(3000 + usize::from(winner), winner);
        assert!(seen.iter().all(|s| *s == expected), "a loser read something else in round {round}");
    }
}

/// Ranges come whole and in the order asked for; past the end is an error.
pub async fn ranges_are_whole_or_errors(store: &Store) {
    let key = Key::Segment { uuid: Uuid::new_v4(), depth: 1, hash: [1; 32] };
    let bytes = content(100_000, 3);
    store.put_content_addressed(&key, bytes.clone()).await.unwrap();
    let cut = |r: &Range<u64>| bytes.slice(r.start as usize..r.end as usize);
    let good = [0..1, 99_999..100_000, 500..70_000, 0..100_000, 400..401, 400..402];
    for range in &good {
        assert_eq!(store.get_range(&key, range.clone()).await.unwrap(), cut(range));
    }
    let parts = store.get_ranges(&key, &good).await.unwrap();
    assert!(parts.iter().zip(&good).all(|(p, r)| *p == cut(r)));
    assert!(store.get_ranges(&key, &[]).await.unwrap().is_empty());

    for bad in [99_999..100_001, 100_000..100_001, 5_000_000..5_000_010] {
        assert_eq!(store.get_range(&key, bad.clone()).await.unwrap_err().kind(), ErrorKind::TooShort);
        let many = store.get_ranges(&key, &[0..10, bad.clone(), 20..30]).await;
        assert_eq!(many.unwrap_err().kind(), ErrorKind::TooShort);
    }
    assert_eq!(store.get_range(&key, 7..7).await.unwrap_err().kind(), ErrorKind::Invalid);
    let absent = Key::Segment { uuid: Uuid::new_v4(), depth: 1, hash: [1; 32] };
    assert_eq!(store.get_range(&absent, 0..1).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(store.get_ranges(&absent, &[0..1, 2..3]).await.unwrap_err().kind(), ErrorKind::NotFound);
}

/// A block is checked against the hash in its reference.
pub async fn blocks_are_verified(store: &Store) {
    let key = Key::Pack { uuid: Uuid::new_v4(), depth: 1, hash: [2; 32] };
    let bytes = content(10_000, 4);
    store.put_content_addressed(&key, bytes.clone()).await.unwrap();
    let block = bytes.slice(128..4224);
    let hash = *blake3::hash(&block).as_bytes();
    assert_eq!(store.get_block(&key, 128, 4096, &hash).await.unwrap(), block);
    assert_eq!(store.get_block(&key, 129, 4096, &hash).await.unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(store.get_block(&key, 9_000, 4096, &hash).await.unwrap_err().kind(), ErrorKind::TooShort);
    let overflow = store.get_block(&key, u64::MAX - 1, 4096, &hash).await;
    assert_eq!(overflow.unwrap_err().kind(), ErrorKind::Invalid);
}

/// Repeated puts are skipped; an object of the wrong length is replaced.
pub async fn content_addressed_puts_repeat_and_repair(store: &Store) {
    let key = Key::Root { uuid: Uuid::new_v4(), depth: 3, hash: [3; 32] };
    let bytes = content(5000, 5);
    let torn = bytes.slice(..77);
    assert_eq!(store.put_content_addressed(&key, torn).await.unwrap(), PutOutcome::Written);
    assert_eq!(store.put_content_addressed(&key, bytes.clone()).await.unwrap(), PutOutcome::Written);
    assert_eq!(store.put_content_addressed(&key, bytes.clone()).await.unwrap(), PutOutcome::Present);
    assert_eq!(store.get(&key).await.unwrap(), bytes);
}

/// Objects written piece by piece, by async and by blocking code, small and over one part.
pub async fn writers_stream_and_publish(store: &Store) {
    let uuid = Uuid::new_v4();
    for (len, blocking) in [(0, false), (1000, false), (3 << 20, true), (17 << 20, false)] {
        let bytes = content(len, 6);
        let mut writer = store.writer(ObjectKind::Pack).unwrap();
        for chunk in bytes.chunks(300_000) {
            if blocking {
                writer.write_blocking(chunk).unwrap();
            } else {
                writer.write(chunk).await.unwrap();
            }
        }
        assert_eq!(writer.len(), len as u64);
        let hash = *blake3::hash(&bytes).as_bytes();
        assert_eq!(writer.hash(), hash);
        let key = Key::Pack { uuid, depth: 1, hash };
        assert_eq!(writer.finish(&key).await.unwrap(), PutOutcome::Written);
        assert_eq!(store.get(&key).await.unwrap(), bytes);
        if len > 0 {
            assert_eq!(store.get_range(&key, len as u64 - 1..len as u64).await.unwrap()[0], bytes[len - 1]);
        }

        let mut again = store.writer(ObjectKind::Pack).unwrap();
        again.write(&bytes).await.unwrap();
        assert_eq!(again.finish(&key).await.unwrap(), PutOutcome::Present);
    }
    let mut dropped = store.writer(ObjectKind::Pack).unwrap();
    dropped.write(b"never finished").await.unwrap();
    drop(dropped);
}

/// Deleting what is not there is fine, and a deleted key can be created again.
pub async fn deletes_may_repeat(store: &Store) {
    let key = Key::Batch { uuid: Uuid::new_v4(), aim: 4, nonce: [9; 16] };
    store.delete(&key).await.unwrap();
    store.create_if_absent(&key, content(10, 7)).await.unwrap();
    store.delete(&key).await.unwrap();
    store.delete(&key).await.unwrap();
    assert_eq!(store.try_get(&key).await.unwrap(), None);
    let again = store.create_if_absent(&key, content(11, 8)).await.unwrap();
    assert_eq!(again, CreateOutcome::Created);
}

/// A listing gives every key of its folder and none of another's.
pub async fn listings_give_keys(store: &Store) {
    let (uuid, other) = (Uuid::new_v4(), Uuid::new_v4());
    let mut expected = Vec::new();
    for sequence in 1..=30 {
        let key = Key::Log { uuid, sequence };
        store.create_if_absent(&key, content(sequence as usize, 0)).await.unwrap();
        store.create_if_absent(&Key::Log { uuid: other, sequence }, content(1, 0)).await.unwrap();
        expected.push((key, sequence));
    }
    store.create_if_absent(&Key::Record { uuid }, content(5, 0)).await.unwrap();
    let mut listed: Vec<_> = store.list(&Folder::Log(uuid)).try_collect().await.unwrap();
    listed.sort_by(|a, b| a.key.cmp(&b.key));
    let got: Vec<_> = listed.into_iter().map(|l| (l.key, l.size)).collect();
    assert_eq!(got, expected);

    let all: Vec<_> = store.list(&Folder::Collection(uuid)).try_collect().await.unwrap();
    assert_eq!(all.len(), 31);
    let none: Vec<_> = store.list(&Folder::Packs(uuid)).try_collect().await.unwrap();
    assert!(none.is_empty());
}

/// Names are listed once each, whatever their numbers.
pub async fn names_are_listed(store: &Store) {
    let name = |s: &str| format!("{s}-{}", Uuid::new_v4());
    let (a, b) = (name("a"), name("b.c_d"));
    for (name, n) in [(&b, 1), (&a, 1), (&a, 2)] {
        let key = Key::Name { name: name.clone(), n };
        store.create_if_absent(&key, content(16, 0)).await.unwrap();
    }
    let names = store.list_names().await.unwrap();
    assert!(names.is_sorted());
    assert_eq!(names.iter().filter(|n| **n == a || **n == b).count(), 2);
}

/// From hints below, at and above, with and without a floor, in few requests.
pub async fn the_newest_is_found_from_any_hint(store: &Store) {
    let uuid = Uuid::new_v4();
    let heads = Series::Heads(uuid);
    for hint in [0, 1, 5, u64::MAX] {
        assert_eq!(store.newest(&heads, hint).await.unwrap(), 0);
    }
    for n in 1..=40 {
        store.create_if_absent(&heads.key(n), content(20, 0)).await.unwrap();
        if n.is_power_of_two() || n == 40 {
            for hint in [0, 1, n - 1, n, n + 1, 2 * n, 1000, u64::MAX - 1, u64::MAX] {
                assert_eq!(store.newest(&heads, hint).await.unwrap(), n, "hint {hint}");
            }
        }
    }
    let before = store.counters();
    assert_eq!(store.newest(&heads, 40).await.unwrap(), 40);
    assert_eq!(store.counters().since(&before).of(ObjectKind::Head).requests(), 2, "a right hint costs two");

    // Entries at and below the floor are gone.
    let log = Series::Log(uuid);
    for n in 21..=33 {
        store.create_if_absent(&log.key(n), content(20, 0)).await.unwrap();
    }
    for hint in [0, 20, 21, 33, 34, 500] {
        assert_eq!(store.newest_after(&log, 20, hint).await.unwrap(), 33, "hint {hint}");
    }
    assert_eq!(store.newest_after(&log, 33, 0).await.unwrap(), 33);
    assert_eq!(store.newest_after(&log, 500, 20).await.unwrap(), 500, "never less than what is known");
    assert_eq!(store.newest_after(&log, u64::MAX, 0).await.unwrap(), u64::MAX);
}

/// Bytes that tell positions and objects apart.
fn content(len: usize, salt: u8) -> Bytes {
    (0..len)
        .map(|i| (i as u32).wrapping_mul(2_654_435_761).to_le_bytes()[3] ^ salt)
        .collect::<Vec<_>>()
        .into()
}
