//! Id runs: every id is found in the one block its index names, others are mostly not looked for.

use crate::common;

use std::sync::Arc;

use pando_format::*;

fn cut(pack: &[u8], block: BlockRef) -> &[u8] {
    let bytes = &pack[block.offset as usize..block.offset as usize + block.len as usize];
    block.verify(ObjectKind::IdBlock, bytes).unwrap();
    bytes
}

fn open(pack: &[u8], block: BlockRef) -> IdBlock {
    IdBlock::decode(Arc::new(cut(pack, block).into())).unwrap()
}

fn indexes(run: &IdRun, pack: &[u8]) -> Vec<IdIndex> {
    let index = |part: &IdRunPart| {
        let mut index = IdIndex::decode(cut(pack, part.index)).unwrap();
        index.resolve(part.index.pack);
        index
    };
    run.parts.iter().map(index).collect()
}

#[test]
fn ids_are_found() {
    for (kind, n) in [(IdKind::U64, 300_000u64), (IdKind::Str, 200_000)] {
        let (run, pack) = common::id_run(kind, n);
        assert_eq!(run.ids, n);
        assert!(run.parts.len() > 1, "more than one part");
        let indexes = indexes(&run, &pack);
        let find = |id: &RecordId| {
            let at = run.parts.partition_point(|p| p.last < *id);
            let entry = indexes.get(at)?.find(id)?;
            assert_eq!(entry.block.pack, run.parts[at].index.pack);
            open(&pack, entry.block).find(id.into())
        };
        let id = |i: u64, miss: bool| match kind {
            IdKind::U64 => RecordId::U64(3 * i + u64::from(miss)),
            IdKind::Str => RecordId::Str(format!("id-{i:08}{}", if miss { "x" } else { "" })),
        };
        for i in (0..n).step_by(997).chain([n - 1]) {
            assert_eq!(find(&id(i, false)), Some(10 * i));
            assert_eq!(find(&id(i, true)), None);
        }
        let misses: Vec<RecordId> = (0..n).step_by(61).map(|i| id(i, true)).collect();
        let passed = misses.iter().filter(|id| {
            let at = run.parts.partition_point(|p| p.last < **id);
            indexes.get(at).is_some_and(|index| index.find(id).is_some())
        });
        let rate = passed.count() as f64 / misses.len() as f64;
        assert!(rate < 0.02, "filters let {rate} of the misses pass");
        // All pairs, in order, from the blocks.
        let blocks = indexes.iter().flat_map(|index| &index.blocks).map(|entry| open(&pack, entry.block));
        let rows: Vec<u64> = blocks.flat_map(|block| block.rows().to_vec()).collect();
        assert!(rows.iter().copied().eq((0..n).map(|i| 10 * i)));
    }
}

#[test]
fn order_and_kind_are_checked() {
    let mut pack = PackWriter::new(Vec::new()).unwrap();
    let mut builder = IdRunBuilder::new(IdKind::U64, 0);
    builder.push(5u64.into(), 1, &mut pack).unwrap();
    assert!(builder.push(5u64.into(), 1, &mut pack).is_err());
    assert!(builder.push(4u64.into(), 1, &mut pack).is_err());
    assert!(builder.push("a".into(), 1, &mut pack).is_err());
    assert!(encode_id_block(IdKind::U64, &[(2u64.into(), 1), (1u64.into(), 1)]).is_err());
}

#[test]
fn merge_keeps_the_newest() {
    let stream = |pairs: &[(u64, u64)]| {
        pairs
            .iter()
            .map(|&(id, row)| Ok::<_, String>((RecordId::U64(id), row)))
            .collect::<Vec<_>>()
            .into_iter()
    };
    let merged =
        merge_ids(vec![stream(&[(2, 20), (5, 50)]), stream(&[]), stream(&[(1, 1), (2, 2), (3, 3), (5, 5)])]);
    let merged: Vec<_> = merged.map(|pair| pair.unwrap()).collect();
    assert_eq!(merged, [(1u64, 1u64), (2, 20), (3, 3), (5, 50)].map(|(id, row)| (RecordId::U64(id), row)));
    let failing = vec![Ok((RecordId::U64(1), 1)), Err("broken".to_owned()), Ok((RecordId::U64(9), 9))];
    let merged: Vec<_> = merge_ids(vec![failing.into_iter()]).collect();
    assert_eq!(merged.len(), 1, "the error is met when the head is refilled");
    assert!(merged[0].is_err());
}

#[test]
fn names_have_one_spelling() {
    let root = RootId([0xAB; 32]);
    assert_eq!(root.to_string().parse(), Ok(root));
    assert!(root.to_string().to_uppercase().parse::<RootId>().is_err());
    let object = common::object(12, 3);
    assert_eq!(object.to_string(), format!("00000000000000000012-{}", "03".repeat(32)));
    assert_eq!(object.to_string().parse(), Ok(object));
    let uuid = common::uuid(0xAB);
    assert_eq!(uuid.to_string().parse(), Ok(uuid));
    for bad in
        ["", "abababab", "ABABABAB-abab-abab-abab-abababababab", "{abababab-abab-abab-abab-abababababab}"]
    {
        assert!(bad.parse::<CollectionUuid>().is_err(), "{bad}");
    }
    assert!("1".parse::<Number>().is_err() && "99999999999999999999".parse::<Number>().is_err());
    let body = BodyName { aim: 7, nonce: Nonce([0x0F; 16]) };
    assert_eq!(body.to_string().parse(), Ok(body));
    assert!(RecordId::U64(u64::MAX) < RecordId::from("0") && RecordId::from("1") != RecordId::U64(1));
    assert_ne!(id_hash(&RecordId::U64(1)), id_hash(&RecordId::from("1")));
}
