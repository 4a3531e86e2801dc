//! Decoders meet any bytes without a panic, and objects with a checksum of their own notice every flip.

use std::sync::OnceLock;

use crate::common::{self, Sample, samples};
use pando_format::*;
use proptest::prelude::*;

fn all() -> &'static [Sample] {
    static ALL: OnceLock<Vec<Sample>> = OnceLock::new();
    ALL.get_or_init(samples)
}

fn sample(name: &str) -> &'static Sample {
    all().iter().find(|s| s.name == name).expect("a sample of this name")
}

#[test]
fn every_single_bit_flip_of_a_checked_object_is_refused() {
    for sample in all().iter().filter(|s| s.checked) {
        let mut bytes = sample.bytes.clone();
        // All bits of small objects, a spread of them in large ones (a step prime to 8 meets every bit).
        let step = (8 * bytes.len() / 2_000).max(1) | 1;
        for bit in (0..8 * bytes.len()).step_by(step) {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!((sample.decode)(&bytes).is_err(), "{} accepts a flip of bit {bit}", sample.name);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

#[test]
fn every_truncation_and_extension_is_refused() {
    for sample in all() {
        let longest = sample.bytes.len();
        let step = (longest / 500).max(1);
        for n in (0..longest).step_by(step).chain([longest - 1]) {
            // A pack is checked by its header here; its blocks have hashes of their own.
            if sample.name != "pack" {
                assert!((sample.decode)(&sample.bytes[..n]).is_err(), "{} accepts {n} bytes", sample.name);
            }
        }
        let mut longer = sample.bytes.clone();
        longer.push(0);
        assert!((sample.decode)(&longer).is_err() || sample.name == "pack", "{} accepts a tail", sample.name);
    }
}

#[test]
fn an_object_of_one_kind_is_not_taken_for_another() {
    for sample in all() {
        for other in all() {
            let same = sample.name == other.name
                || sample.name.starts_with("node_refs") && other.name.starts_with("node_refs")
                || sample.name.starts_with("id_block") && other.name.starts_with("id_block");
            assert!((sample.decode)(&other.bytes).is_ok() == same, "{} read as {}", other.name, sample.name);
        }
    }
}

#[test]
fn a_newer_version_is_told_from_damage() {
    let mut bytes = common::manifest().encode().unwrap();
    let end = bytes.len() - 4;
    bytes[6..8].copy_from_slice(&9u16.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..end]);
    bytes[end..].copy_from_slice(&crc.to_le_bytes());
    let error = Manifest::decode(&bytes).unwrap_err();
    assert_eq!(
        error,
        FormatError::Version { kind: ObjectKind::Manifest, found: 9, supported: FORMAT_VERSION }
    );
}

#[test]
fn a_block_is_checked_by_length_and_hash() {
    let bytes = common::node_codes(3, 128);
    let mut pack = PackWriter::new(Vec::new()).unwrap();
    let placed = pack.append(&bytes).unwrap();
    let reference = placed.at(common::object(1, 1));
    assert!(reference.verify(ObjectKind::NodeCodes, &bytes).is_ok());
    let mut flipped = bytes.clone();
    flipped[100] ^= 1;
    assert!(reference.verify(ObjectKind::NodeCodes, &flipped).is_err());
    assert!(reference.verify(ObjectKind::NodeCodes, &bytes[..99]).is_err());
    let error = reference.verify(ObjectKind::NodeCodes, &flipped).unwrap_err();
    assert_eq!(error.to_string(), "node codes block does not match its checksum");
}

/// Puts a valid checksum on an envelope, so that the decoder behind it is reached.
fn reseal(bytes: &mut [u8]) {
    if bytes.len() < 16 {
        return;
    }
    let end = bytes.len() - 4;
    let len = (end - 12) as u32;
    bytes[8..12].copy_from_slice(&len.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..end]);
    bytes[end..].copy_from_slice(&crc.to_le_bytes());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_never_panic(which in 0..all().len(), bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = (all()[which].decode)(&bytes);
    }

    #[test]
    fn mutations_never_panic(
        which in 0..all().len(),
        cut in 0.0..1.0f64,
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        truncate in any::<bool>(),
    ) {
        let sample = &all()[which];
        let mut bytes = sample.bytes.clone();
        if truncate {
            bytes.truncate((bytes.len() as f64 * cut) as usize);
        }
        if bytes.is_empty() {
            return Ok(());
        }
        for (at, value) in edits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let _ = (sample.decode)(&bytes);
        // Behind a valid envelope: what decodes must encode to the very same bytes.
        if bytes.len() > 16 && bytes[..4] == *b"PNDO" {
            reseal(&mut bytes);
            if let Ok(Some(again)) = (sample.decode)(&bytes) {
                prop_assert!(again == bytes, "{} has two encodings", sample.name);
            }
        }
    }

    /// Behind hashes and page checksums: Arrow's own reader must survive what it is given.
    #[test]
    fn mutated_arrow_never_panics(
        cut in 0.0..1.0f64,
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        truncate in any::<bool>(),
    ) {
        let mut bytes = sample("body").bytes.clone();
        if truncate {
            bytes.truncate((bytes.len() as f64 * cut) as usize);
        }
        for (at, value) in &edits {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = *value;
            }
        }
        let place = BodyPlace::Inline(bytes.clone().into());
        let body = Body { rows: 9, len: bytes.len() as u64, hash: Hash::of(&bytes), place };
        let _ = body.rows(&bytes, 4);

        let (bytes, _, side) = common::segment_20();
        let range = side.batch_range(0);
        let mut batch = bytes[range.start as usize..range.end as usize].to_vec();
        for (at, value) in edits {
            let at = at.index(batch.len());
            batch[at] = value;
        }
        let _ = side.decode_batch(0, &batch);
        let [meta, payload] = side.payload_ranges(0);
        let (meta, payload) = ((meta.end - meta.start) as usize, (payload.end - payload.start) as usize);
        let _ = side.decode_payload(0, &batch[..meta], &batch[batch.len() - payload..]);
        let ids = side.ids_range(0);
        let ids = (ids.start - range.start) as usize..(ids.end - range.start) as usize;
        let _ = side.decode_ids(0, &batch[ids]);
    }

    #[test]
    fn row_sets_have_one_encoding(
        runs in prop::collection::vec((0u64..400_000, 1u64..3000, 1u64..4), 0..12),
    ) {
        let mut rows: Vec<u64> =
            runs.iter().flat_map(|&(first, n, step)| (0..n).map(move |i| first + i * step)).collect();
        rows.sort_unstable();
        rows.dedup();
        let forward: RowSet = rows.iter().copied().collect();
        let mut backward = RowSet::new();
        rows.iter().rev().for_each(|&row| { backward.insert(row); });
        let bytes = DeathBlock { rows: forward }.encode().unwrap();
        prop_assert_eq!(&DeathBlock { rows: backward }.encode().unwrap(), &bytes);
        prop_assert_eq!(DeathBlock::decode(&bytes).unwrap().rows.iter().collect::<Vec<_>>(), rows);
    }
}
