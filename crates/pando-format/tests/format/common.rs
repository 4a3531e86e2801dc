//! One small object of every kind, made without randomness, with its decoder.

use std::sync::{Arc, OnceLock};

use pando_format::*;

/// The object's bytes encoded again, where there is an encoder of decoded values.
pub type Again = Result<Option<Vec<u8>>, FormatError>;

pub struct Sample {
    pub name: &'static str,
    pub bytes: Vec<u8>,
    /// Decodes and encodes again.
    pub decode: fn(&[u8]) -> Again,
    /// The bytes carry their own checksum: any flip must be refused.
    pub checked: bool,
}

pub fn hash(n: u8) -> Hash {
    Hash([n; 32])
}

pub fn object(depth: u64, n: u8) -> ObjectRef {
    ObjectRef { depth, hash: hash(n) }
}

pub fn block(n: u8) -> BlockRef {
    BlockRef { pack: object(2, n), offset: 64 * u64::from(n), len: 1000 + u32::from(n), hash: hash(n ^ 0x55) }
}

pub fn uuid(n: u8) -> CollectionUuid {
    CollectionUuid(uuid::Uuid::from_bytes([n; 16]))
}

pub fn config() -> CollectionConfig {
    CollectionConfig {
        dim: 4,
        metric: Metric::Cosine,
        copies: 2,
        refine: true,
        seed: 7,
        small_limit: 10_000,
        log_retention_seconds: 3600,
    }
}

/// `n` records of dimension `dim` with both kinds of ids and all types of attributes.
pub fn rows(n: usize, dim: usize) -> Rows {
    let mut builder = RowsBuilder::new(dim);
    for i in 0..n {
        let id = if i % 3 == 1 { RecordId::from(format!("id-{i}")) } else { RecordId::U64(1000 + i as u64) };
        let vector: Vec<f32> = (0..dim).map(|j| ((i * 31 + j * 17) % 97) as f32 / 16.0 - 2.0).collect();
        let k = i as i64;
        let attributes = [
            ("bool", Value::Bool(i % 2 == 0)),
            ("bools", Value::BoolList(vec![true, i % 2 == 0])),
            ("bytes", Value::Bytes(vec![i as u8; i % 5])),
            ("float", Value::Float64(k as f64 / 4.0)),
            ("floats", Value::Float64List(vec![k as f64, f64::NAN])),
            ("int", Value::Int64(-k)),
            ("ints", Value::Int64List((0..k % 4).collect())),
            ("text", Value::String(format!("täxt {i}"))),
            ("texts", Value::StringList(vec![String::new(), format!("{i}")])),
            ("time", Value::Timestamp(1_700_000_000_000_000 + k)),
        ];
        let some = attributes.iter().enumerate().filter(|(j, _)| (i + j) % 4 != 0);
        builder.push(id, &vector, some.map(|(_, (name, value))| (*name, value))).unwrap();
    }
    builder.finish().unwrap()
}

pub fn entry() -> Entry {
    let (first, _) = Body::new(&rows(3, 4), BodyName { aim: 6, nonce: Nonce([8; 16]) }).unwrap();
    let external = BodyPlace::External(BodyName { aim: 5, nonce: Nonce([3; 16]) });
    let second = Body { rows: 5, len: 400_000, hash: hash(9), place: external };
    let operations = vec![
        Operation::Upsert { body: 0, from: 0, to: 2 },
        Operation::DeleteIds(vec![RecordId::U64(17), RecordId::from("gone")]),
        Operation::Upsert { body: 0, from: 2, to: 3 },
        Operation::Upsert { body: 1, from: 0, to: 5 },
        Operation::DeleteRows([1u64, 2, 3, 70_000, 70_002].into_iter().collect()),
        Operation::Closed(Closing { successor: Some(uuid(4)) }),
        Operation::Purge([5u64].into_iter().collect()),
    ];
    let bytes = first.len + second.len + Entry::operation_bytes(&operations);
    let key =
        KeyRecord { key: "key-1".into(), body_hash: hash(1), outcome: Outcome { affected: 8, missing: 1 } };
    Entry {
        uuid: uuid(1),
        sequence: 7,
        nonce: Nonce([2; 16]),
        first_row: 100,
        rows: 8,
        bytes,
        cumulative_rows: 108,
        cumulative_bytes: 1_000_000,
        operations,
        keys: vec![key],
        bodies: vec![first, second],
    }
}

pub fn group() -> NodeRefs {
    let leaf = |id: u64| LeafChild {
        id,
        band: 0,
        whole: id == 12,
        live: 10,
        n_primary: 11,
        n_secondary: 3,
        primary_fp: row_fingerprint(id),
        secondary_fp: u128::MAX - u128::from(id),
        parts: vec![LeafPlace { block: 0, slot: id as u32 - 11 }, LeafPlace { block: 1, slot: 0 }],
    };
    let blocks = vec![
        GroupBlock { leaf: block(1), refine: Some(block(2)) },
        GroupBlock { leaf: block(3), refine: Some(block(4)) },
    ];
    NodeRefs { id: 10, level: 1, children: NodeChildren::Group { blocks, leaves: vec![leaf(11), leaf(12)] } }
}

pub fn node_codes(n: usize, padded: usize) -> Vec<u8> {
    let codes: Vec<u8> = (0..n * padded / 2).map(|i| (i * 7) as u8).collect();
    let column = |k: f32| -> Vec<f32> { (0..n).map(|i| i as f32 + k).collect() };
    let parts = NodeCodesParts {
        padded,
        codes: &codes,
        w: &column(0.25),
        add: &column(0.5),
        r2: &column(0.75),
        extra: &vec![0.0; n],
    };
    encode_node_codes(&parts).unwrap()
}

pub fn manifest() -> Manifest {
    let mut attributes = AttributeSchema::default();
    attributes.add_all(rows(8, 4).fields()).unwrap();
    let f = row_fingerprint;
    let top = TopNode { refs: group(), codes: node_codes(2, 128).into(), centroids: block(6) };
    let tree = TreeInfo {
        split_size: 128,
        mean: vec![0.5, -0.5, 0.25, 0.0],
        bands: vec![],
        next_id: 13,
        scrub_cursor: 11,
        levels: 2,
        leaves: 2,
        rows_at_build: 20,
        calibration: Calibration {
            rows: 20,
            changed: 2,
            ks: vec![1, 10],
            targets: vec![800_000, 950_000],
            margins: vec![0.1, 0.2, 0.3, 0.4],
        },
        top,
    };
    let segment = |first_row: u64| SegmentEntry {
        object: object(2, first_row as u8),
        bytes: 9000,
        rows: 50,
        live_rows: 10,
        first_row,
        last_row: first_row + 49,
        side: block(7),
        indexes: vec![AttributeIndexEntry { name: "int".into(), kind: 1, block: block(8) }],
    };
    Manifest {
        algorithm: ALGORITHM_VERSION,
        config: config(),
        depth: 3,
        parent: Some(RootId([0xAB; 32])),
        plan: PlanContents { end_sequence: 7, algorithm: ALGORITHM_VERSION, stepped_over: vec![5] },
        sequence: 7,
        next_row: 108,
        counts: Counts {
            live: 20,
            dead: 3,
            dead_primaries: 2,
            dead_secondaries: 1,
            primaries: 22,
            secondaries: 6,
            cumulative_rows: 108,
            cumulative_bytes: 1_000_000,
        },
        fingerprints: Fingerprints {
            live: f(1),
            dead_primaries: f(2),
            primaries: f(1).wrapping_add(f(2)),
            secondaries: f(3),
        },
        tree: Some(tree),
        packs: vec![
            PackEntry { object: object(1, 1), kind: PackKind::Leaves, bytes: 5000, live_bytes: 4000 },
            PackEntry { object: object(2, 1), kind: PackKind::Mixed, bytes: 7000, live_bytes: 7000 },
        ],
        segments: vec![segment(0), segment(50)],
        id_runs: vec![id_run(IdKind::U64, 3).0, IdRun { level: 1, ..id_run(IdKind::Str, 3).0 }],
        deaths: Deaths {
            chunks: vec![DeathChunk { chunk: 0, rows: 2, block: block(9) }],
            deltas: vec![DeathDelta { rows: 1, block: block(10) }],
        },
        attributes,
        window: vec![WindowEntry {
            first_sequence: 1,
            last_sequence: 7,
            nonces: 7,
            keys: 1,
            block: block(11),
        }],
    }
}

/// A run of `n` ids in a pack of its own, and the pack's bytes.
pub fn id_run(kind: IdKind, n: u64) -> (IdRun, Vec<u8>) {
    let mut pack = PackWriter::new(Vec::new()).unwrap();
    let mut builder = IdRunBuilder::new(kind, 0);
    for i in 0..n {
        let id = match kind {
            IdKind::U64 => RecordId::U64(3 * i),
            IdKind::Str => RecordId::Str(format!("id-{i:08}")),
        };
        builder.push(id, 10 * i, &mut pack).unwrap();
    }
    let run = builder.finish(&mut pack).unwrap();
    let (bytes, summary) = pack.finish().unwrap();
    (run.at(ObjectRef { depth: 1, hash: summary.hash }), bytes)
}

fn leaf_slots(run: impl Fn(&[SlotParts<'_>]) -> Vec<u8>) -> Vec<u8> {
    let (dim, padded, n) = (4, 128, 35);
    let centroid: Vec<f32> = (0..dim).map(|i| i as f32).collect();
    let rows: Vec<u64> = (0..30).map(|i| 2 * i).chain((0..5).map(|i| 7 * i)).collect();
    let column = |k: f32| -> Vec<f32> { (0..n).map(|i| i as f32 * 0.5 + k).collect() };
    let packed = |n: usize| -> Vec<u8> {
        let there = |i: usize| i % 32 < n.saturating_sub(i / (4 * padded) * 32);
        (0..packed_len(n, padded)).map(|i| if there(i) { (i * 13) as u8 } else { 0 }).collect()
    };
    let (packed, few) = (packed(n), packed(2));
    let nibbles: Vec<u8> = (0..n * padded / 2).map(|i| (i * 11) as u8).collect();
    let (a, b, c) = (column(0.0), column(1.0), column(2.0));
    let whole = SlotParts {
        leaf: 11,
        kind: SlotKind::Whole,
        centroid: &centroid,
        n_primary: 30,
        rows: &rows,
        f_add: &a,
        f_rescale: &b,
        norm: &c,
        packed: &packed,
        refine: Some(RefineParts { nibbles: &nibbles, f_add: &a, f_rescale: &b, f_error: &c }),
    };
    let append = SlotParts {
        leaf: 12,
        kind: SlotKind::Append,
        centroid: &[],
        n_primary: 1,
        rows: &rows[..2],
        f_add: &a[..2],
        f_rescale: &b[..2],
        norm: &c[..2],
        packed: &few,
        refine: Some(RefineParts {
            nibbles: &nibbles[..padded],
            f_add: &a[..2],
            f_rescale: &b[..2],
            f_error: &c[..2],
        }),
    };
    let empty = SlotParts {
        leaf: 13,
        n_primary: 0,
        rows: &[],
        f_add: &[],
        f_rescale: &[],
        norm: &[],
        packed: &[],
        ..append
    };
    let empty = SlotParts {
        refine: Some(RefineParts { nibbles: &[], f_add: &[], f_rescale: &[], f_error: &[] }),
        ..empty
    };
    run(&[whole, append, empty, SlotParts { leaf: 14, ..append }])
}

/// A slot read without the rest of its block is the same. (Compared as bits: NaN may occur.)
fn leaf_slot_alone(block: &DecodedLeafBlock, i: usize, bytes: &[u8]) {
    let place = block.slots()[i].place();
    let range = place.range();
    let part = &bytes[range.start as usize..range.end as usize];
    let alone = DecodedLeafBlock::decode_slot(&place, block.dim(), block.padded(), aligned(part)).unwrap();
    let (want, got) = (block.slot(i), alone.slot(0));
    assert_eq!(
        (want.leaf, want.kind, want.n_primary, want.rows, want.packed),
        (got.leaf, got.kind, got.n_primary, got.rows, got.packed)
    );
    let columns = |s: LeafSlot<'_>| [s.centroid, s.f_add, s.f_rescale, s.norm].map(bits);
    assert_eq!(columns(want), columns(got));
}

fn refine_slot_alone(block: &DecodedRefineBlock, i: usize, bytes: &[u8]) {
    let place = block.slots()[i].place();
    let at = |range: std::ops::Range<u64>| &bytes[range.start as usize..range.end as usize];
    let part = aligned(at(place.range()));
    let alone = DecodedRefineBlock::decode_slot(&place, block.dim(), block.padded(), part).unwrap();
    let (want, got) = (block.slot(i), alone.slot(0));
    assert_eq!((want.leaf, want.nibbles), (got.leaf, got.nibbles));
    let columns = |s: RefineSlot<'_>| [s.f_add, s.f_rescale, s.f_error].map(bits);
    assert_eq!(columns(want), columns(got));
    // And single rows.
    let layout = RefineLayout::new(&place, block.padded());
    let row = block.padded() / 2;
    for (j, nibbles) in want.nibbles.chunks_exact(row).enumerate() {
        assert_eq!(at(layout.nibbles(j as u32)), nibbles);
        let factors = layout.factors_of(j as u32, at(layout.factors()));
        assert_eq!(bits(&factors), bits(&[want.f_add[j], want.f_rescale[j], want.f_error[j]]));
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// A leaf block's slots encoded again.
fn leaf_again(block: &DecodedLeafBlock) -> Again {
    let slots: Vec<SlotParts<'_>> = (0..block.slots().len())
        .map(|i| {
            let s = block.slot(i);
            SlotParts {
                leaf: s.leaf,
                kind: s.kind,
                centroid: s.centroid,
                n_primary: s.n_primary,
                rows: s.rows,
                f_add: s.f_add,
                f_rescale: s.f_rescale,
                norm: s.norm,
                packed: s.packed,
                refine: None,
            }
        })
        .collect();
    encode_leaf_block(block.dim(), block.padded(), &slots).map(Some)
}

/// A refine block's slots encoded again. Its rows lie in the leaf block, their number counts.
fn refine_again(block: &DecodedRefineBlock) -> Again {
    let most = block.slots().iter().map(|s| s.n_primary + s.n_secondary).max().unwrap_or(0);
    let rows: Vec<u64> = (0..most as u64).collect();
    let slots: Vec<SlotParts<'_>> = block
        .slots()
        .iter()
        .enumerate()
        .map(|(i, index)| {
            let s = block.slot(i);
            let refine = RefineParts {
                nibbles: s.nibbles,
                f_add: s.f_add,
                f_rescale: s.f_rescale,
                f_error: s.f_error,
            };
            SlotParts {
                leaf: s.leaf,
                kind: index.kind,
                centroid: &[],
                n_primary: index.n_primary,
                rows: &rows[..index.n_primary + index.n_secondary],
                f_add: &[],
                f_rescale: &[],
                norm: &[],
                packed: &[],
                refine: Some(refine),
            }
        })
        .collect();
    encode_refine_block(block.dim(), block.padded(), &slots).map(Some)
}

/// Row numbers with holes: every fifth is missing.
pub fn row_numbers(n: usize) -> Vec<u64> {
    (0..n as u64).map(|i| 100 + i + i / 4).collect()
}

pub fn segment(n: usize, dim: usize) -> (Vec<u8>, SegmentSummary, SegmentSide) {
    let rows = rows(n, dim);
    let mut schema = AttributeSchema::default();
    schema.add_all(rows.fields()).unwrap();
    schema.add("unused", AttributeType::StringList).unwrap();
    let mut writer = SegmentWriter::new(Vec::new(), dim, &schema).unwrap();
    writer.push(&row_numbers(n), &rows).unwrap();
    writer.finish().unwrap()
}

fn stored<T: Stored>(bytes: &[u8]) -> Again {
    T::decode(bytes)?.encode().map(Some)
}

fn aligned(bytes: &[u8]) -> Arc<AlignedBytes> {
    Arc::new(AlignedBytes::copy_from(bytes))
}

pub fn samples() -> Vec<Sample> {
    macro_rules! stored {
        ($name:literal, $ty:ty, $value:expr) => {
            Sample { name: $name, bytes: $value.encode().unwrap(), decode: stored::<$ty>, checked: true }
        };
    }
    let target = RootRef { root: RootId([5; 32]), depth: 2, generation: 3 };
    let (run, pack) = id_run(IdKind::U64, 5);
    let index = &pack[run.parts[0].index.offset as usize..];
    let (segment_bytes, _, side) = segment(20, 4);
    vec![
        stored!(
            "record",
            CollectionRecord,
            CollectionRecord {
                uuid: uuid(1),
                name: "books.v1".into(),
                config: config(),
                lineage: vec![Ancestor { uuid: uuid(2), up_to_depth: 4 }],
                forked: Some(ForkPoint { root: RootId([9; 32]), depth: 4, sequence: 12, next_row: 99 }),
                shards: 1,
            }
        ),
        stored!("entry", Entry, entry()),
        stored!(
            "plan",
            Plan,
            Plan { depth: 3, parent: Some(RootId([0xAB; 32])), number: 1, contents: manifest().plan }
        ),
        stored!(
            "head",
            Head,
            Head {
                uuid: uuid(1),
                generation: 3,
                root: Some(HeadRoot {
                    root: RootId([5; 32]),
                    depth: 3,
                    len: 4096,
                    parent: Some(RootId([4; 32]))
                }),
                sequence: 7,
                log_floor: 2,
                next_row: 108,
                cumulative_rows: 108,
                cumulative_bytes: 1_000_000,
                closed: None,
            }
        ),
        stored!("name", NameRecord, NameRecord { name: "books.v1".into(), number: 2, owner: Some(uuid(1)) }),
        stored!("manifest", Manifest, manifest()),
        stored!("tag", TagRecord, TagRecord { tag: "monday".into(), number: 1, target: Some(target) }),
        stored!("pin", PinRecord, PinRecord { fork: uuid(3), target }),
        stored!("sweep", SweepRecord, SweepRecord { nonce: Nonce([6; 16]), generation: 9, up_to_depth: 8 }),
        stored!("node_refs_group", NodeRefs, group()),
        stored!(
            "node_refs_inner",
            NodeRefs,
            NodeRefs {
                id: 20,
                level: 2,
                children: NodeChildren::Inner(vec![InnerChild {
                    id: 10,
                    leaves: 2,
                    live: 20,
                    refs: block(1),
                    codes: block(2),
                    centroids: block(3),
                }]),
            }
        ),
        stored!(
            "deaths",
            DeathBlock,
            DeathBlock {
                rows: (0..5000u64)
                    .chain([70_000, 70_002])
                    .chain((1 << 40..(1 << 40) + 60_000).step_by(2))
                    .collect(),
            }
        ),
        stored!(
            "window",
            WindowBlock,
            WindowBlock {
                nonces: vec![WindowNonce { sequence: 7, nonce: Nonce([2; 16]) }],
                keys: vec![WindowKey { sequence: 7, record: entry().keys.remove(0) }],
            }
        ),
        stored!("segment_side", SegmentSide, side),
        Sample {
            name: "id_index",
            bytes: index[..run.parts[0].index.len as usize].to_vec(),
            decode: stored::<IdIndex>,
            checked: true,
        },
        Sample {
            name: "node_codes",
            bytes: node_codes(3, 128),
            decode: |bytes| {
                let c = NodeCodes::decode(aligned(bytes))?;
                let parts = NodeCodesParts {
                    padded: c.padded(),
                    codes: c.codes(),
                    w: c.w(),
                    add: c.add(),
                    r2: c.r2(),
                    extra: c.extra(),
                };
                encode_node_codes(&parts).map(Some)
            },
            checked: false,
        },
        Sample {
            name: "centroids",
            bytes: encode_centroids(3, &[1.0, 2.0, 3.0, -1.0, -2.0, -3.0]).unwrap(),
            decode: |bytes| {
                let c = Centroids::decode(aligned(bytes))?;
                encode_centroids(c.dim(), c.values()).map(Some)
            },
            checked: false,
        },
        Sample {
            name: "leaf_block",
            bytes: leaf_slots(|slots| encode_leaf_block(4, 128, slots).unwrap()),
            decode: |bytes| {
                let block = DecodedLeafBlock::decode(aligned(bytes))?;
                for i in 0..block.slots().len() {
                    let slot = block.slot(i);
                    let n = slot.rows.len();
                    assert_eq!([slot.f_add.len(), slot.f_rescale.len(), slot.norm.len()], [n; 3]);
                    assert_eq!(slot.packed.len(), packed_len(n, block.padded()));
                    assert!(slot.n_primary <= n);
                    leaf_slot_alone(&block, i, bytes);
                }
                leaf_again(&block)
            },
            checked: false,
        },
        Sample {
            name: "refine_block",
            bytes: leaf_slots(|slots| encode_refine_block(4, 128, slots).unwrap()),
            decode: |bytes| {
                let block = DecodedRefineBlock::decode(aligned(bytes))?;
                for i in 0..block.slots().len() {
                    let slot = block.slot(i);
                    assert_eq!(slot.nibbles.len(), slot.f_add.len() * block.padded() / 2);
                    refine_slot_alone(&block, i, bytes);
                }
                refine_again(&block)
            },
            checked: false,
        },
        Sample {
            name: "id_block_u64",
            bytes: encode_id_block(IdKind::U64, &[(1u64.into(), 5), (2u64.into(), 3), (u64::MAX.into(), 9)])
                .unwrap(),
            decode: id_block,
            checked: false,
        },
        Sample {
            name: "id_block_string",
            bytes: encode_id_block(IdKind::Str, &[("a".into(), 5), ("ab".into(), 3), ("é".into(), 9)])
                .unwrap(),
            decode: id_block,
            checked: false,
        },
        Sample {
            name: "pack",
            bytes: pack,
            decode: |bytes| check_pack_header(bytes).map(|()| None),
            checked: false,
        },
        Sample { name: "segment", bytes: segment_bytes, decode: segment_file, checked: true },
        Sample {
            name: "body",
            bytes: rows(9, 4).to_body().unwrap(),
            decode: |bytes| {
                static BODY: OnceLock<Body> = OnceLock::new();
                let name = BodyName { aim: 1, nonce: Nonce([0; 16]) };
                let body = BODY.get_or_init(|| Body::new(&rows(9, 4), name).unwrap().0);
                body.rows(bytes, 4)?.to_body().map(Some)
            },
            checked: true,
        },
    ]
}

fn id_block(bytes: &[u8]) -> Again {
    let block = IdBlock::decode(aligned(bytes))?;
    let pairs: Vec<(RecordId, u64)> = block.iter().map(|(id, row)| (id.to_id(), row)).collect();
    if block.is_empty() { Ok(None) } else { encode_id_block(block.kind(), &pairs).map(Some) }
}

/// The sample segment, made once.
pub fn segment_20() -> &'static (Vec<u8>, SegmentSummary, SegmentSide) {
    static SEGMENT: OnceLock<(Vec<u8>, SegmentSummary, SegmentSide)> = OnceLock::new();
    SEGMENT.get_or_init(|| segment(20, 4))
}

/// Reads a segment as the engine does: pages checked, then ranges decoded. Writes it again.
fn segment_file(bytes: &[u8]) -> Again {
    let side = &segment_20().2;
    side.check_pages(0, bytes)?;
    let mut schema = AttributeSchema::default();
    for attribute in &side.attributes {
        schema.add(&attribute.name, attribute.ty)?;
    }
    let mut writer = SegmentWriter::new(Vec::new(), side.dim as usize, &schema)?;
    for i in 0..side.batches.len() {
        let range = side.batch_range(i);
        let batch = side.decode_batch(i, &bytes[range.start as usize..range.end as usize])?;
        writer.push(&batch.numbers, &batch.rows)?;
    }
    Ok(Some(writer.finish()?.0))
}
