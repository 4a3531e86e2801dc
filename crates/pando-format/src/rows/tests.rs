use std::sync::Arc;

use arrow_array::builder::{Int64Builder, ListBuilder, StringBuilder, StringViewBuilder};
use arrow_array::types::{Float32Type, Float64Type, Int8Type, UInt32Type};
use arrow_array::*;
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Schema};
use pando_kernels::Metric;

use super::*;
use crate::error::FormatError;
use crate::ids::Nonce;
use crate::object::entry::{Body, BodyName};
use crate::value::MAX_ATTRIBUTE_BYTES;

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    let fields: Vec<Field> =
        columns.iter().map(|(n, a)| Field::new(*n, a.data_type().clone(), true)).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns.into_iter().map(|(_, a)| a).collect())
        .unwrap()
}

fn fixed(dim: i32, values: Vec<f32>) -> ArrayRef {
    let item = Arc::new(Field::new("item", DataType::Float32, true));
    Arc::new(FixedSizeListArray::new(item, dim, Arc::new(Float32Array::from(values)), None))
}

fn vectors(n: usize) -> ArrayRef {
    fixed(2, (0..2 * n).map(|i| i as f32 + 1.0).collect())
}

fn read(columns: Vec<(&str, ArrayRef)>) -> Result<Rows, InputError> {
    Rows::from_record_batch(&batch(columns), "id", "vec", 2)
}

fn refuse(columns: Vec<(&str, ArrayRef)>) -> InputError {
    read(columns).expect_err("to be refused")
}

fn numbers(n: usize) -> ArrayRef {
    Arc::new(UInt64Array::from_iter_values(0..n as u64))
}

#[test]
fn ids_of_every_spelling_are_equal() {
    let text = ["a", "b", "a", "é"];
    let dictionary: DictionaryArray<Int8Type> = text.into_iter().collect();
    let wide: DictionaryArray<UInt32Type> = text.into_iter().collect();
    let wide = arrow_cast::cast(
        &wide,
        &DataType::Dictionary(Box::new(DataType::UInt32), Box::new(DataType::LargeUtf8)),
    );
    let spellings: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from(text.to_vec())),
        Arc::new(LargeStringArray::from(text.to_vec())),
        Arc::new(StringViewArray::from(text.to_vec())),
        Arc::new(dictionary),
        wide.unwrap(),
    ];
    let expected: Vec<RecordId> = text.into_iter().map(RecordId::from).collect();
    for ids in spellings {
        let rows = read(vec![("s", Arc::clone(&ids)), ("vec", vectors(4)), ("id", ids)]).unwrap();
        assert_eq!(rows.ids(), expected);
        assert_eq!(rows.value(3, "s"), Some(Value::String("é".into())));
    }
    let numbers: Vec<ArrayRef> = vec![
        Arc::new(Int8Array::from(vec![0, 7, 127])),
        Arc::new(UInt16Array::from(vec![0, 7, 127])),
        Arc::new(Int64Array::from(vec![0, 7, 127])),
        Arc::new(UInt64Array::from(vec![0, 7, 127])),
    ];
    for ids in numbers {
        let rows = read(vec![("id", ids), ("vec", vectors(3))]).unwrap();
        assert_eq!(rows.ids(), [0u64, 7, 127].map(RecordId::from));
    }
}

#[test]
fn bad_ids_are_refused_by_position() {
    let refuse_ids = |ids: ArrayRef| {
        let n = ids.len();
        refuse(vec![("id", ids), ("vec", vectors(n))])
    };
    let error = refuse_ids(Arc::new(Int32Array::from(vec![3, -1])));
    assert_eq!((error.row, error.column.as_deref()), (Some(1), Some("id")));
    assert_eq!(refuse_ids(Arc::new(StringArray::from(vec!["a", ""]))).row, Some(1));
    assert_eq!(refuse_ids(Arc::new(StringArray::from(vec![Some("a"), None]))).row, Some(1));
    assert_eq!(refuse_ids(Arc::new(StringArray::from(vec!["x".repeat(513)]))).row, Some(0));
    assert!(
        read(vec![("id", Arc::new(StringArray::from(vec!["x".repeat(512)]))), ("vec", vectors(1))]).is_ok()
    );
    let error = refuse_ids(Arc::new(Float64Array::from(vec![1.0])));
    assert!(error.to_string().contains("Float64"), "{error}");
    // A null key, and a key of a null value.
    let keys = Int8Array::from(vec![Some(0), None]);
    let ids = DictionaryArray::new(keys, Arc::new(StringArray::from(vec!["a"])));
    assert_eq!(refuse_ids(Arc::new(ids)).row, Some(1));
    let keys = Int8Array::from(vec![0, 1]);
    let ids = DictionaryArray::new(keys, Arc::new(StringArray::from(vec![Some("a"), None])));
    assert_eq!(refuse_ids(Arc::new(ids)).row, Some(1));
}

#[test]
fn vectors_of_every_spelling_are_equal() {
    let values = [1.0f32, 2.0, 3.0, 4.0];
    let item = |ty: DataType| Arc::new(Field::new("item", ty, true));
    let f16: Vec<_> = values.iter().map(|v| half(*v)).collect();
    let f64s: Vec<f64> = values.iter().map(|v| f64::from(*v)).collect();
    let children: Vec<ArrayRef> = vec![
        Arc::new(Float32Array::from(values.to_vec())),
        Arc::new(Float64Array::from(f64s)),
        Arc::new(Float16Array::from(f16)),
    ];
    for child in children {
        let field = item(child.data_type().clone());
        let offsets = OffsetBuffer::new(ScalarBuffer::from(vec![0i32, 2, 4]));
        let large = OffsetBuffer::new(ScalarBuffer::from(vec![0i64, 2, 4]));
        let spellings: Vec<ArrayRef> = vec![
            Arc::new(FixedSizeListArray::new(Arc::clone(&field), 2, Arc::clone(&child), None)),
            Arc::new(ListArray::new(Arc::clone(&field), offsets, Arc::clone(&child), None)),
            Arc::new(LargeListArray::new(field, large, child, None)),
        ];
        for vec in spellings {
            assert_eq!(read(vec![("id", numbers(2)), ("vec", vec)]).unwrap().vectors(), values);
        }
    }
}

fn half(v: f32) -> <types::Float16Type as ArrowPrimitiveType>::Native {
    <types::Float16Type as ArrowPrimitiveType>::Native::from_f32(v)
}

#[test]
fn bad_vectors_are_refused_by_position_and_id() {
    let refuse_vec = |vec: ArrayRef| {
        let n = vec.len();
        refuse(vec![("id", numbers(n)), ("vec", vec)])
    };
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let error = refuse_vec(fixed(2, vec![1.0, 1.0, 1.0, bad]));
        assert_eq!(
            (error.row, error.id.as_deref(), error.column.as_deref()),
            (Some(1), Some("1"), Some("vec"))
        );
    }
    let item = Arc::new(Field::new("item", DataType::Float32, true));
    // A null slot with values under it, and a null element in a valid slot.
    let values: ArrayRef = Arc::new(Float32Array::from(vec![1.0, 1.0, 9.0, 9.0]));
    let nulls = NullBuffer::from(vec![true, false]);
    let error = refuse_vec(Arc::new(FixedSizeListArray::new(Arc::clone(&item), 2, values, Some(nulls))));
    assert_eq!((error.row, error.what.as_str()), (Some(1), "the vector is null"));
    let values: ArrayRef = Arc::new(Float32Array::from(vec![Some(1.0), Some(1.0), Some(1.0), None]));
    let error = refuse_vec(Arc::new(FixedSizeListArray::new(Arc::clone(&item), 2, values, None)));
    assert_eq!((error.row, error.what.as_str()), (Some(1), "element 1 is null"));
    assert_eq!(refuse_vec(fixed(3, vec![1.0; 6])).row, Some(0));
    let empty = FixedSizeListArray::try_new_with_length(
        item,
        0,
        Arc::new(Float32Array::from(vec![0f32; 0])),
        None,
        2,
    );
    assert_eq!(refuse_vec(Arc::new(empty.unwrap())).row, Some(0));
    let ragged = ListArray::from_iter_primitive::<Float32Type, _, _>(vec![
        Some(vec![Some(1.0), Some(2.0)]),
        Some(vec![Some(1.0)]),
    ]);
    assert_eq!(refuse_vec(Arc::new(ragged)).row, Some(1));
    let wide = ListArray::from_iter_primitive::<Float64Type, _, _>(vec![Some(vec![Some(1.0), Some(1e39)])]);
    assert!(refuse_vec(Arc::new(wide)).what.contains("does not fit"));
    let error =
        refuse_vec(Arc::new(ListArray::from_iter_primitive::<types::Int32Type, _, _>(vec![Some(vec![
            Some(1),
            Some(2),
        ])])));
    assert!(error.what.contains("Int32"), "{error}");
}

#[test]
fn metric_rules() {
    let rows = read(vec![("id", numbers(2)), ("vec", fixed(2, vec![1.0, 0.0, 0.0, -0.0]))]).unwrap();
    assert!(rows.validate(Metric::L2).is_ok() && rows.validate(Metric::Dot).is_ok());
    let error = rows.validate(Metric::Cosine).unwrap_err();
    assert_eq!((error.row, error.id.as_deref()), (Some(1), Some("1")));
    for bad in [1e-20f32, 1e20, f32::MIN_POSITIVE, f32::MAX] {
        for metric in [Metric::L2, Metric::Cosine, Metric::Dot] {
            assert!(check_vector(metric, &[bad, 0.0]).is_err(), "{bad}");
        }
    }
    assert!(check_vector(Metric::Cosine, &[1e-18, 0.0]).is_ok());
    assert!(check_vector(Metric::Cosine, &[1e19, 0.0]).is_ok());
}

#[test]
fn sliced_batches_give_their_logical_values() {
    let nulls = |i: usize| [2, 3, 8].contains(&i);
    let n: Int64Array = (0..10).map(|i| (!nulls(i as usize)).then_some(i)).collect();
    let mut views = StringViewBuilder::new();
    let mut tags = ListBuilder::new(StringBuilder::new());
    for i in 0..10 {
        views.append_option((!nulls(i)).then(|| format!("a rather long text, number {i}")));
        for t in 0..i % 3 {
            tags.values().append_value(format!("t{t}"));
        }
        tags.append(!nulls(i));
    }
    let bools: BooleanArray = (0..10).map(|i| (!nulls(i)).then_some(i % 2 == 0)).collect();
    let ids: StringArray = (0..10).map(|i| Some(format!("id{i}"))).collect();
    let whole = batch(vec![
        ("id", Arc::new(ids) as ArrayRef),
        ("vec", vectors(10)),
        ("n", Arc::new(n)),
        ("s", Arc::new(views.finish())),
        ("tags", Arc::new(tags.finish())),
        ("b", Arc::new(bools)),
    ]);
    let all = Rows::from_record_batch(&whole, "id", "vec", 2).unwrap();
    for (start, end) in [(0, 10), (3, 7), (1, 2), (8, 10), (5, 5), (4, 9)] {
        let slice = Rows::from_record_batch(&whole.slice(start, end - start), "id", "vec", 2).unwrap();
        assert_eq!(slice, all.slice(start..end), "{start}..{end}");
        let again = Rows::from_record_batch(
            &whole.slice(start, end - start).slice(0, (end - start) / 2),
            "id",
            "vec",
            2,
        );
        assert_eq!(again.unwrap(), all.slice(start..start + (end - start) / 2));
        // Through the body: the identity, and the same bytes for a slice as for its copy.
        assert_eq!(Rows::from_body(&slice.to_body().unwrap(), 2).unwrap(), slice);
        let rebuilt = Rows::concat(2, &[&slice]).unwrap();
        assert_eq!(rebuilt.to_body().unwrap(), slice.to_body().unwrap());
    }
    assert_eq!(all.value(3, "s"), None);
    assert_eq!(all.value(5, "tags"), Some(Value::StringList(vec!["t0".into(), "t1".into()])));
}

#[test]
fn attribute_types_are_taken_as_stated() {
    let one = |array: ArrayRef| read(vec![("id", numbers(1)), ("vec", vectors(1)), ("a", array)]);
    let value = |array: ArrayRef| one(array).unwrap().value(0, "a").unwrap();
    assert_eq!(value(Arc::new(Int8Array::from(vec![-3]))), Value::Int64(-3));
    assert_eq!(value(Arc::new(UInt64Array::from(vec![i64::MAX as u64]))), Value::Int64(i64::MAX));
    assert_eq!(one(Arc::new(UInt64Array::from(vec![u64::MAX]))).unwrap_err().row, Some(0));
    assert_eq!(value(Arc::new(Float32Array::from(vec![1.5]))), Value::Float64(1.5));
    assert_eq!(value(Arc::new(LargeBinaryArray::from(vec![&b"xy"[..]]))), Value::Bytes(b"xy".to_vec()));
    let fixed_binary = FixedSizeBinaryArray::try_from_iter([[1u8, 2]].into_iter()).unwrap();
    assert_eq!(value(Arc::new(fixed_binary)), Value::Bytes(vec![1, 2]));
    assert_eq!(value(Arc::new(BinaryViewArray::from(vec![&b"xy"[..]]))), Value::Bytes(b"xy".to_vec()));
    assert_eq!(value(Arc::new(TimestampSecondArray::from(vec![-1]))), Value::Timestamp(-1_000_000));
    assert_eq!(value(Arc::new(TimestampNanosecondArray::from(vec![-1]))), Value::Timestamp(-1));
    assert_eq!(value(Arc::new(Date32Array::from(vec![1]))), Value::Timestamp(86_400_000_000));
    assert_eq!(one(Arc::new(TimestampSecondArray::from(vec![i64::MAX]))).unwrap_err().row, Some(0));
    let mut list = ListBuilder::new(Int64Builder::new());
    list.append_value([Some(1), Some(2)]);
    assert_eq!(value(Arc::new(list.finish())), Value::Int64List(vec![1, 2]));
    let mut list = ListBuilder::new(Int64Builder::new());
    list.append_value([Some(1), None]);
    assert_eq!(one(Arc::new(list.finish())).unwrap_err().row, Some(0));
    let unsupported: Vec<ArrayRef> = vec![
        Arc::new(Time32SecondArray::from(vec![1])),
        Arc::new(Decimal128Array::from(vec![1])),
        new_null_array(&DataType::Struct(vec![Field::new("x", DataType::Int8, true)].into()), 1),
    ];
    for array in unsupported {
        let error = one(array).unwrap_err();
        assert!(error.what.contains("not supported") && error.column.as_deref() == Some("a"), "{error}");
    }
    // Null everywhere, whatever the type: the attribute is absent.
    assert_eq!(one(new_null_array(&DataType::Null, 1)).unwrap().columns().len(), 0);
    assert_eq!(one(new_null_array(&DataType::Int64, 1)).unwrap().columns().len(), 0);
}

#[test]
fn limits_and_columns() {
    let one = |text: String| {
        let text: ArrayRef = Arc::new(StringArray::from(vec![text]));
        read(vec![("id", numbers(1)), ("vec", vectors(1)), ("a", text)])
    };
    assert!(one("x".repeat(MAX_ATTRIBUTE_BYTES - 1)).is_ok());
    let error = one("x".repeat(MAX_ATTRIBUTE_BYTES)).unwrap_err();
    assert_eq!((error.row, error.id.as_deref()), (Some(0), Some("0")));
    let a = || -> ArrayRef { Arc::new(Float64Array::from(vec![1.0])) };
    let error = refuse(vec![("id", numbers(1)), ("a", a()), ("vec", vectors(1)), ("a", a())]);
    assert_eq!(error.column.as_deref(), Some("a"));
    assert_eq!(refuse(vec![("id", numbers(1))]).column.as_deref(), Some("vec"));
    assert_eq!(refuse(vec![("vec", vectors(1))]).column.as_deref(), Some("id"));
    // One long value that a million rows share must not be written out a million times.
    let keys = Int8Array::from(vec![0; 100_000]);
    let values = Arc::new(StringArray::from(vec!["x".repeat(60_000)]));
    let shared: ArrayRef = Arc::new(DictionaryArray::new(keys, values));
    let error = refuse(vec![("id", numbers(100_000)), ("vec", vectors(100_000)), ("a", shared)]);
    assert!(error.what.contains("written out"), "{error}");
}

#[test]
fn builder_checks_and_agrees_with_import() {
    let mut builder = RowsBuilder::new(2);
    let (n, s) = (Value::Int64(5), Value::StringList(vec!["x".into()]));
    builder.push(RecordId::U64(1), &[1.0, 2.0], [("n", &n)]).unwrap();
    let error = builder.push(RecordId::U64(2), &[1.0], []).unwrap_err();
    assert_eq!((error.row, error.id.as_deref()), (Some(1), Some("2")));
    assert!(builder.push(RecordId::U64(2), &[1.0, f32::NAN], []).is_err());
    assert!(builder.push(RecordId::from(""), &[1.0, 1.0], []).is_err());
    assert!(builder.push(RecordId::U64(2), &[1.0, 1.0], [("n", &s)]).is_err());
    assert!(builder.push(RecordId::U64(2), &[1.0, 1.0], [("n", &n), ("n", &n)]).is_err());
    builder.push(RecordId::from("b"), &[3.0, 4.0], [("s", &s), ("n", &n)]).unwrap();
    let rows = builder.finish().unwrap();
    assert_eq!(rows.len(), 2);
    assert_eq!(rows.attributes(0).len(), 1);
    assert_eq!(rows.value(1, "s"), Some(s));
    assert_eq!(Rows::from_body(&rows.to_body().unwrap(), 2).unwrap(), rows);
    assert_eq!(rows.take(&[1, 0]).take(&[1, 0]), rows);
}

#[test]
fn bodies_are_checked_by_hash() {
    let rows = read(vec![("id", numbers(3)), ("vec", vectors(3))]).unwrap();
    let (body, bytes) = Body::new(&rows, BodyName { aim: 1, nonce: Nonce([0; 16]) }).unwrap();
    assert_eq!(body.rows(&bytes, 2).unwrap(), rows);
    let mut flipped = bytes.to_vec();
    for at in 0..flipped.len() {
        flipped[at] ^= 1;
        assert!(matches!(body.rows(&flipped, 2), Err(FormatError::Checksum { .. })));
        flipped[at] ^= 1;
    }
}
