//! Places that the side block computes are those of the file, and reads of parts give what was written.

use crate::common;

use std::io::Cursor;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, UInt64Type};
use arrow_ipc::reader::FileReader;
use pando_format::*;

fn cut(bytes: &[u8], range: std::ops::Range<u64>) -> &[u8] {
    &bytes[range.start as usize..range.end as usize]
}

/// Several record batches: 40 rows of 16 KiB vectors, 64 a batch would be one; dim 16,384 has 16 a batch.
fn large() -> (Vec<u8>, SegmentSummary, SegmentSide) {
    common::segment(40, 16_384)
}

#[test]
fn computed_places_are_those_of_the_file() {
    for (bytes, summary, side) in [common::segment(20, 4), common::segment(1, 3), large()] {
        let rows = common::rows(side.rows as usize, side.dim as usize);
        let numbers = common::row_numbers(rows.len());
        assert_eq!((summary.bytes, summary.hash), (bytes.len() as u64, Hash::of(&bytes)));
        assert_eq!((summary.first_row, summary.last_row), (numbers[0], numbers[numbers.len() - 1]));
        let mut vector = vec![0.0; side.dim as usize];
        for (i, &number) in numbers.iter().enumerate() {
            assert_eq!(side.position(number), Some(i as u64));
            SegmentSide::decode_vector(cut(&bytes, side.vector_range(i as u64)), &mut vector).unwrap();
            assert_eq!(vector, rows.vector(i));
            let (batch, index) = side.batch_of(i as u64);
            let ids = cut(&bytes, side.ids_range(batch));
            assert_eq!(side.decode_id(batch, index, ids).unwrap(), rows.ids()[i]);
        }
        let mut at = 0;
        for b in 0..side.batches.len() {
            let n = side.batch_rows(b);
            let slice = rows.slice(at..at + n);
            assert_eq!(SegmentSide::decode_u64s(cut(&bytes, side.row_numbers_range(b))), numbers[at..at + n]);
            let hashes: Vec<u64> = slice.ids().iter().map(id_hash).collect();
            assert_eq!(SegmentSide::decode_u64s(cut(&bytes, side.id_hashes_range(b))), hashes);
            let batch = side.decode_batch(b, cut(&bytes, side.batch_range(b))).unwrap();
            assert_eq!(
                (&batch.numbers[..], &batch.id_hashes, &batch.rows),
                (&numbers[at..at + n], &hashes, &slice)
            );
            let [meta, payload] = side.payload_ranges(b);
            let payload = side.decode_payload(b, cut(&bytes, meta), cut(&bytes, payload)).unwrap();
            assert_eq!(payload.ids, slice.ids());
            for i in 0..n {
                assert_eq!(payload.value(i, "text"), slice.value(i, "text"));
                assert_eq!(payload.value(i, "unused"), None);
            }
            assert_eq!(SegmentSide::decode(&side.encode().unwrap()).unwrap(), side);
            at += n;
        }
    }
}

#[test]
fn rows_that_are_not_there_have_no_position() {
    let (_, summary, side) = common::segment(20, 4);
    let numbers = common::row_numbers(20);
    for row in 0..summary.last_row + 10 {
        assert_eq!(side.position(row).is_some(), numbers.contains(&row), "{row}");
    }
}

#[test]
fn bytes_do_not_depend_on_how_rows_come_in() {
    let (n, dim) = (40, 16_384);
    let (bytes, _, side) = large();
    let rows = common::rows(n, dim);
    let numbers = common::row_numbers(n);
    let mut schema = AttributeSchema::default();
    schema.add_all(rows.fields()).unwrap();
    schema.add("unused", AttributeType::StringList).unwrap();
    let mut writer = SegmentWriter::new(Vec::new(), dim, &schema).unwrap();
    let mut at = 0;
    for size in [1, 2, 3, 5, 8, 13, 8] {
        writer.push(&numbers[at..at + size], &rows.slice(at..at + size)).unwrap();
        at += size;
    }
    let (again, _, again_side) = writer.finish().unwrap();
    assert!(again == bytes && again_side == side);
}

#[test]
fn pages_are_checked() {
    let (mut bytes, _, side) = large();
    let range = side.page_range(&side.vector_range(17));
    side.check_pages(range.start, cut(&bytes, range.clone())).unwrap();
    let tail = side.page_range(&(side.bytes - 1..side.bytes));
    side.check_pages(tail.start, cut(&bytes, tail.clone())).unwrap();
    side.check_pages(0, &bytes).unwrap();
    assert!(side.check_pages(1, &bytes[1..]).is_err());
    assert!(side.check_pages(range.start, &cut(&bytes, range.clone())[1..]).is_err());
    bytes[range.start as usize + 100] ^= 4;
    let error = side.check_pages(range.start, cut(&bytes, range)).unwrap_err();
    assert_eq!(error, FormatError::Checksum { kind: ObjectKind::Segment });
    assert!(side.check_pages(0, &bytes).is_err());
}

#[test]
fn plain_arrow_reads_a_segment() {
    let (bytes, _, side) = large();
    let rows = common::rows(40, 16_384);
    let reader = FileReader::try_new(Cursor::new(&bytes), None).unwrap();
    assert_eq!(reader.num_batches(), side.batches.len());
    let mut at = 0;
    for batch in reader {
        let batch = batch.unwrap();
        let numbers = batch.column_by_name("row_number").unwrap().as_primitive::<UInt64Type>();
        assert_eq!(numbers.values(), &common::row_numbers(40)[at..at + batch.num_rows()]);
        let vectors = batch.column_by_name("vector").unwrap().as_fixed_size_list();
        let flat = vectors.values().as_primitive::<Float32Type>();
        assert_eq!(flat.values(), rows.slice(at..at + batch.num_rows()).vectors());
        at += batch.num_rows();
    }
    assert_eq!(at, 40);
}

#[test]
fn wrong_order_and_unknown_attributes_are_refused() {
    let rows = common::rows(2, 4);
    let none = AttributeSchema::default();
    let mut writer = SegmentWriter::new(Vec::new(), 4, &none).unwrap();
    assert!(writer.push(&[1, 2], &rows).is_err());
    let mut schema = AttributeSchema::default();
    schema.add_all(rows.fields()).unwrap();
    let mut writer = SegmentWriter::new(Vec::new(), 4, &schema).unwrap();
    assert!(writer.push(&[2, 1], &rows).is_err());
    assert!(SegmentWriter::new(Vec::new(), 4, &schema).unwrap().finish().is_err());
}
