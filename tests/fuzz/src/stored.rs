//! Stored objects: what lies in the bucket, behind checksums and, for the fuzzer's sake, with checksums put right.

use pando_format::{Body, BodyPlace, Hash};

use crate::Target;
use crate::common::{self, Sample, samples};

/// A decoder may take so much whatever it is given: the sample behind it, tables of the libraries below.
const BASE: usize = 4 << 20;
/// Decoded rows carry Arrow arrays, ids and copies of them beside the bytes.
const FACTOR: usize = 64;

/// Puts a valid checksum and length on an envelope, so that the decoder behind it is reached.
fn reseal(bytes: &mut [u8]) {
    if bytes.len() < 16 || bytes[..4] != *b"PNDO" {
        return;
    }
    let end = bytes.len() - 4;
    let len = (end - 12) as u32;
    bytes[8..12].copy_from_slice(&len.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..end]);
    bytes[end..].copy_from_slice(&crc.to_le_bytes());
}

fn decoder(sample: &Sample) -> Target {
    let decode = sample.decode;
    let run = move |input: &[u8]| {
        let whole = decode(input).is_ok();
        let mut sealed = input.to_vec();
        reseal(&mut sealed);
        if (sealed.starts_with(b"PNDO") || sealed.starts_with(b"PNDB"))
            && let Ok(Some(again)) = decode(&sealed)
        {
            assert!(again == sealed, "two encodings of one object");
        }
        whole
    };
    Target {
        name: format!("stored_{}", sample.name),
        run: Box::new(run),
        seeds: vec![sample.bytes.clone()],
        base: BASE,
        factor: FACTOR,
    }
}

/// Records of a log entry: Arrow's own reader behind a hash.
fn body(input: &[u8]) -> bool {
    let place = BodyPlace::Inline(input.to_vec().into());
    let body = Body { rows: 9, len: input.len() as u64, hash: Hash::of(input), place };
    body.rows(input, 4).is_ok()
}

/// A record batch of a segment behind page checksums, whole and in the parts that are read alone.
fn segment_batch(input: &[u8]) -> bool {
    let side = &common::segment_20().2;
    let mut whole = side.decode_batch(0, input).is_ok() & side.decode_arrow_batch(0, input).is_ok();
    let range = side.batch_range(0);
    if input.len() as u64 == range.end - range.start {
        let [meta, payload] = side.payload_ranges(0);
        let (meta, payload) = ((meta.end - meta.start) as usize, (payload.end - payload.start) as usize);
        whole &= side.decode_payload(0, &input[..meta], &input[input.len() - payload..]).is_ok();
        let ids = side.ids_range(0);
        let ids = (ids.start - range.start) as usize..(ids.end - range.start) as usize;
        whole &= side.decode_ids(0, &input[ids]).is_ok();
    }
    whole
}

/// Every kind of stored object.
pub fn targets() -> Vec<Target> {
    let samples = samples();
    let mut all: Vec<Target> = samples.iter().map(decoder).collect();
    let bytes = |name: &str| samples.iter().find(|s| s.name == name).expect("a sample").bytes.clone();
    let (segment, _, side) = common::segment_20();
    let range = side.batch_range(0);
    let batch = segment[range.start as usize..range.end as usize].to_vec();
    let plain = [
        ("rows_of_a_body", body as fn(&[u8]) -> bool, bytes("body")),
        ("rows_of_a_segment", segment_batch, batch),
    ];
    for (name, run, seed) in plain {
        let (name, run) = (name.into(), Box::new(run));
        all.push(Target { name, run, seeds: vec![seed], base: BASE, factor: FACTOR });
    }
    all
}
