use proptest::prelude::*;

use super::*;

fn keys() -> impl Strategy<Value = Key> {
    let uuid = || any::<u128>().prop_map(Uuid::from_u128);
    let name = || "[a-z0-9][a-z0-9._-]{0,127}";
    let hash = any::<[u8; 32]>;
    prop_oneof![
        (name(), any::<u64>()).prop_map(|(name, n)| Key::Name { name, n }),
        any::<u64>().prop_map(|n| Key::Ceiling { n }),
        uuid().prop_map(|uuid| Key::Record { uuid }),
        (uuid(), any::<u64>()).prop_map(|(uuid, sequence)| Key::Log { uuid, sequence }),
        (uuid(), any::<u64>(), any::<[u8; 16]>()).prop_map(|(uuid, aim, nonce)| Key::Batch {
            uuid,
            aim,
            nonce
        }),
        (uuid(), any::<u64>(), hash(), any::<u64>()).prop_map(|(uuid, depth, parent, n)| Key::Plan {
            uuid,
            depth,
            parent,
            n
        }),
        (uuid(), any::<u64>()).prop_map(|(uuid, generation)| Key::Head { uuid, generation }),
        (uuid(), any::<u64>(), hash()).prop_map(|(uuid, depth, hash)| Key::Segment { uuid, depth, hash }),
        (uuid(), any::<u64>(), hash()).prop_map(|(uuid, depth, hash)| Key::Pack { uuid, depth, hash }),
        (uuid(), any::<u64>(), hash()).prop_map(|(uuid, depth, hash)| Key::Root { uuid, depth, hash }),
        (uuid(), name(), any::<u64>()).prop_map(|(uuid, tag, n)| Key::Tag { uuid, tag, n }),
        (uuid(), uuid()).prop_map(|(uuid, fork)| Key::Pin { uuid, fork }),
        (uuid(), any::<u64>(), hash()).prop_map(|(uuid, depth, root)| Key::Dropped { uuid, depth, root }),
        any::<[u8; 16]>().prop_map(|nonce| Key::Probe { nonce }),
    ]
}

proptest! {
    #[test]
    fn keys_come_back_from_their_paths(key in keys()) {
        prop_assert_eq!(Key::parse(&key.path()), Some(key.clone()));
        // The backends' own path rules must not change a key.
        let path = object_store::path::Path::parse(key.path()).unwrap();
        prop_assert_eq!(path.to_string(), key.path());
    }

    #[test]
    fn one_key_has_one_spelling(key in keys(), at in any::<prop::sample::Index>(), to in any::<char>()) {
        let path = key.path();
        let at = at.index(path.len());
        let changed = format!("{}{to}{}", &path[..at], &path[at + 1..]);
        if let Some(other) = Key::parse(&changed) {
            prop_assert_eq!(other.path(), changed);
        }
    }

    #[test]
    fn numbers_sort_as_keys(a in any::<u64>(), b in any::<u64>()) {
        let key = |sequence| Key::Log { uuid: Uuid::nil(), sequence }.path();
        prop_assert_eq!(a.cmp(&b), key(a).cmp(&key(b)));
    }

    #[test]
    fn parsing_never_panics(path in "\\PC*") {
        let _ = Key::parse(&path);
    }
}

/// Keys are decided for good: DESIGN section 3, spelled out.
#[test]
fn keys_are_spelled_as_designed() {
    let uuid = Uuid::from_u128(0x0123_4567_89ab_4cde_8f01_2345_6789_abcd);
    let u = "01234567-89ab-4cde-8f01-23456789abcd";
    let hash: [u8; 32] = std::array::from_fn(|i| i as u8);
    let h = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    let zeros = "0".repeat(64);
    let n7 = "00000000000000000007";
    let cases = [
        (Key::Name { name: "words.v2".into(), n: 7 }, format!("names/words.v2/{n7}")),
        (Key::Ceiling { n: 7 }, format!("ceiling/{n7}")),
        (Key::Record { uuid }, format!("{u}/record")),
        (Key::Log { uuid, sequence: u64::MAX }, format!("{u}/0/log/18446744073709551615")),
        (
            Key::Batch { uuid, aim: 7, nonce: [0xab; 16] },
            format!("{u}/0/batches/{n7}-abababababababababababababababab"),
        ),
        (
            Key::Plan { uuid, depth: 7, parent: [0; 32], n: 0 },
            format!("{u}/0/plans/{n7}-{zeros}-00000000000000000000"),
        ),
        (Key::Head { uuid, generation: 7 }, format!("{u}/0/heads/{n7}")),
        (Key::Segment { uuid, depth: 7, hash }, format!("{u}/0/segments/{n7}-{h}.arrow")),
        (Key::Pack { uuid, depth: 7, hash }, format!("{u}/0/packs/{n7}-{h}")),
        (Key::Root { uuid, depth: 7, hash }, format!("{u}/0/roots/{n7}-{h}")),
        (Key::Tag { uuid, tag: "v1".into(), n: 7 }, format!("{u}/tags/v1/{n7}")),
        (Key::Pin { uuid, fork: uuid }, format!("{u}/pins/{u}")),
        (Key::Dropped { uuid, depth: 7, root: hash }, format!("{u}/dropped/{n7}-{h}")),
    ];
    for (key, path) in cases {
        assert_eq!(key.path(), path);
        assert_eq!(Key::parse(&path), Some(key));
    }
}

#[test]
fn strays_do_not_parse() {
    let u = "01234567-89ab-4cde-8f01-23456789abcd";
    let n = "00000000000000000001";
    for stray in [
        String::new(),
        "lost+found".into(),
        ".tmpX".into(),
        "names".into(),
        format!("names//{n}"),
        format!("names/../{n}"),
        format!("names/Upper/{n}"),
        "names/a/1".into(),
        "names/a/+0000000000000000001".into(),
        "names/a/99999999999999999999".into(),
        format!("{}/record", u.to_uppercase()),
        format!("{}/record", u.replace('-', "")),
        format!("{{{u}}}/record"),
        format!("{u}/1/log/{n}"),
        format!("{u}/0/log/{n}#1"),
        format!("{u}/0/log/{n}/"),
        format!("/{u}/0/log/{n}"),
        format!("{u}/0/segments/{n}-{}", "0".repeat(64)),
        format!("{u}/0/packs/{n}-{}", "A".repeat(64)),
        format!("{u}/0/packs/{n}-{}", "0".repeat(63)),
    ] {
        assert_eq!(Key::parse(&stray), None, "{stray}");
    }
}

#[test]
fn names_are_checked() {
    for good in ["a", "0", "a-b_c.d", &"x".repeat(128)] {
        assert!(valid_name(good), "{good}");
    }
    for bad in ["", "-a", ".a", "..", "_a", "A", "a/b", "a b", "ä", "a\0", &"x".repeat(129)] {
        assert!(!valid_name(bad), "{bad}");
    }
}

#[test]
fn folders_contain_their_keys() {
    let uuid = Uuid::from_u128(1);
    let hash = [0; 32];
    let pairs = [
        (Folder::Name("a".into()), Key::Name { name: "a".into(), n: 1 }),
        (Folder::Names, Key::Name { name: "a".into(), n: 1 }),
        (Folder::Log(uuid), Key::Log { uuid, sequence: 1 }),
        (Folder::Batches(uuid), Key::Batch { uuid, aim: 1, nonce: [0; 16] }),
        (Folder::Plans(uuid), Key::Plan { uuid, depth: 1, parent: hash, n: 0 }),
        (Folder::Heads(uuid), Key::Head { uuid, generation: 1 }),
        (Folder::Segments(uuid), Key::Segment { uuid, depth: 1, hash }),
        (Folder::Packs(uuid), Key::Pack { uuid, depth: 1, hash }),
        (Folder::Roots(uuid), Key::Root { uuid, depth: 1, hash }),
        (Folder::Tags(uuid), Key::Tag { uuid, tag: "t".into(), n: 1 }),
        (Folder::Pins(uuid), Key::Pin { uuid, fork: uuid }),
        (Folder::Dropped(uuid), Key::Dropped { uuid, depth: 1, root: hash }),
    ];
    for (folder, key) in pairs {
        assert!(key.path().starts_with(&format!("{}/", folder.path())), "{folder:?}");
        assert_eq!(folder.kind(), key.kind());
    }
    assert!(ObjectKind::ALL.iter().enumerate().all(|(i, kind)| *kind as usize == i));
}
