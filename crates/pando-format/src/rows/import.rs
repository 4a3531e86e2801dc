//! Rows from a caller's record batch: any of Arrow's spellings of the same values in, canonical columns out.
//! Columns are matched by name. Only logical values count: slices, offsets, dictionaries and views are
//! resolved, and what lies under nulls is never looked at.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Date64Type, Float16Type, Float32Type, Float64Type, Int64Type, UInt64Type,
};
use arrow_array::types::{
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};
use arrow_array::{
    Array, ArrayRef, Int64Array, ListArray, RecordBatch, TimestampMicrosecondArray, UInt64Array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_cast::CastOptions;
use arrow_schema::{DataType, Field, TimeUnit};

use crate::error::InputError;
use crate::ids::RecordId;
use crate::rows::arrow::{canonical, data_type};
use crate::rows::{Column, Rows};
use crate::value::{AttributeType, MAX_ATTRIBUTE_BYTES, check_name};

/// Dictionaries and views may repeat one long value in every row; resolved they may take this much.
const MAX_RESOLVED_BYTES: usize = 256 << 20;

/// A fault of one value (by position) or of the whole array.
struct Fault {
    at: Option<usize>,
    what: String,
}

impl Fault {
    fn all(what: impl Into<String>) -> Self {
        Self { at: None, what: what.into() }
    }

    fn at(at: usize, what: impl Into<String>) -> Self {
        Self { at: Some(at), what: what.into() }
    }
}

impl Rows {
    /// Records of a caller's batch. `id_column` is of any integer type or a string type, `vector_column` a
    /// list of f16, f32 or f64; all other columns are attributes. Dictionaries and views are accepted for
    /// strings, bytes and ids. Null vectors and elements, wrong dimensions, NaN, infinities, null or empty
    /// ids, negative ids, duplicate columns, oversized attributes and unsupported types are refused by name.
    /// The metric's own rules are checked by [`Rows::validate`].
    pub fn from_record_batch(
        batch: &RecordBatch,
        id_column: &str,
        vector_column: &str,
        dim: usize,
    ) -> Result<Self, InputError> {
        let schema = batch.schema_ref();
        for (i, field) in schema.fields().iter().enumerate() {
            if schema.fields()[..i].iter().any(|other| other.name() == field.name()) {
                return Err(InputError::column(field.name(), "two columns have this name"));
            }
        }
        let column = |name: &str| {
            batch
                .column_by_name(name)
                .ok_or_else(|| InputError::column(name, "there is no column of this name"))
        };
        let ids = ids(column(id_column)?).map_err(|fault| name_fault(fault, id_column, &[]))?;
        let vectors =
            vectors(column(vector_column)?, dim).map_err(|fault| name_fault(fault, vector_column, &ids))?;
        let mut columns = Vec::new();
        let mut bytes = vec![0usize; ids.len()];
        for (field, array) in schema.fields().iter().zip(batch.columns()) {
            let name = field.name();
            if name == id_column || name == vector_column {
                continue;
            }
            check_name(name)?;
            let Some((ty, array)) = attribute(array).map_err(|fault| name_fault(fault, name, &ids))? else {
                continue;
            };
            add_sizes(name, ty, &array, &mut bytes);
            columns.push(Column { name: name.clone(), ty, array });
        }
        if let Some(row) = bytes.iter().position(|&n| n > MAX_ATTRIBUTE_BYTES) {
            let what = format!(
                "the attributes of a record take {} bytes, more than {MAX_ATTRIBUTE_BYTES}",
                bytes[row]
            );
            return Err(InputError {
                row: Some(row as u64),
                id: Some(ids[row].to_string()),
                column: None,
                what,
            });
        }
        Self::from_parts(dim, ids, vectors, columns)
    }
}

fn name_fault(fault: Fault, column: &str, ids: &[RecordId]) -> InputError {
    match fault.at {
        None => InputError::column(column, fault.what),
        Some(row) => {
            let error = InputError::row(row, column, fault.what);
            match ids.get(row) {
                Some(id) => error.with_id(id),
                None => error,
            }
        }
    }
}

/// Adds the size of each record's value (see [`crate::Value::size`]) and of its name.
fn add_sizes(name: &str, ty: AttributeType, array: &ArrayRef, bytes: &mut [usize]) {
    for (row, total) in bytes.iter_mut().enumerate().filter(|(row, _)| array.is_valid(*row)) {
        let elements = || array.as_list::<i32>().value_length(row) as usize;
        *total += name.len()
            + match ty {
                AttributeType::String => array.as_string::<i32>().value_length(row) as usize,
                AttributeType::Bytes => array.as_binary::<i32>().value_length(row) as usize,
                AttributeType::StringList => {
                    let text = array.as_list::<i32>().value(row);
                    let offsets = text.as_string::<i32>().value_offsets();
                    let text = offsets.last().zip(offsets.first()).map_or(0, |(b, a)| (b - a) as usize);
                    8 * elements() + text
                }
                AttributeType::BoolList | AttributeType::Int64List | AttributeType::Float64List => {
                    8 * elements()
                }
                _ => 8,
            };
    }
}

/// Resolves dictionaries and views.
fn plain(array: &ArrayRef) -> Result<ArrayRef, Fault> {
    let target = match array.data_type() {
        DataType::Dictionary(_, values) => match values.as_ref() {
            DataType::Utf8View => DataType::Utf8,
            DataType::BinaryView => DataType::Binary,
            DataType::Dictionary(..) => return Err(unsupported(array.data_type())),
            other => other.clone(),
        },
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        _ => return Ok(Arc::clone(array)),
    };
    if resolved_bytes(array) > MAX_RESOLVED_BYTES {
        return Err(Fault::all(format!(
            "its values take more than {MAX_RESOLVED_BYTES} bytes when written out"
        )));
    }
    arrow_cast::cast(array, &target).map_err(|_| unsupported(array.data_type()))
}

/// Bytes of text that an array takes without dictionary or views.
fn resolved_bytes(array: &ArrayRef) -> usize {
    let length = |array: &ArrayRef, i: usize| match array.data_type() {
        _ if array.is_null(i) => 0,
        DataType::Utf8 => array.as_string::<i32>().value_length(i) as usize,
        DataType::LargeUtf8 => array.as_string::<i64>().value_length(i) as usize,
        DataType::Binary => array.as_binary::<i32>().value_length(i) as usize,
        DataType::LargeBinary => array.as_binary::<i64>().value_length(i) as usize,
        DataType::Utf8View => array.as_string_view().value(i).len(),
        DataType::BinaryView => array.as_binary_view().value(i).len(),
        _ => 8,
    };
    let Some(dictionary) = array.as_any_dictionary_opt() else {
        return (0..array.len()).map(|i| length(array, i)).sum();
    };
    let values = dictionary.values();
    if values.is_empty() {
        return 0;
    }
    let lengths: Vec<usize> = (0..values.len()).map(|i| length(values, i)).collect();
    let keys = dictionary.normalized_keys();
    let rows = keys.iter().enumerate().filter(|(row, _)| array.is_valid(*row));
    rows.map(|(_, &key)| lengths.get(key).copied().unwrap_or(0)).fold(0, usize::saturating_add)
}

fn unsupported(ty: &DataType) -> Fault {
    Fault::all(format!("the type {ty} is not supported"))
}

/// Casts; a value that the target cannot hold becomes a fault at its position.
fn cast(array: &ArrayRef, target: &DataType, what: &str) -> Result<ArrayRef, Fault> {
    let options = CastOptions { safe: true, ..Default::default() };
    let out = arrow_cast::cast_with_options(array, target, &options)
        .map_err(|_| Fault::all(format!("its values cannot be taken as {target}")))?;
    if out.null_count() != array.null_count() {
        let lost = (0..out.len()).find(|&i| out.is_null(i) && array.is_valid(i));
        if let Some(at) = lost {
            return Err(Fault::at(at, what));
        }
    }
    Ok(out)
}

fn ids(array: &ArrayRef) -> Result<Vec<RecordId>, Fault> {
    let array = &plain(array)?;
    if let Some(at) = array.nulls().and_then(|n| (0..array.len()).find(|&i| n.is_null(i))) {
        return Err(Fault::at(at, "the id is null"));
    }
    let text = match array.data_type() {
        DataType::Utf8 => Arc::clone(array),
        DataType::LargeUtf8 => cast(array, &DataType::Utf8, "the id is too long")?,
        ty if ty.is_integer() => {
            let numbers = cast(array, &DataType::UInt64, "the id is negative")?;
            return Ok(numbers.as_primitive::<UInt64Type>().values().iter().map(|&n| n.into()).collect());
        }
        DataType::Null if array.is_empty() => return Ok(Vec::new()),
        ty => return Err(Fault::all(format!("an id is an integer or a string, not {ty}"))),
    };
    let text = text.as_string::<i32>();
    (0..text.len())
        .map(|i| {
            let id = RecordId::from(text.value(i));
            id.check().map_err(|e| Fault::at(i, e.what))?;
            Ok(id)
        })
        .collect()
}

/// Start and end of each row's elements, and the elements.
type Lists = (Vec<(usize, usize)>, ArrayRef);

fn lists(array: &ArrayRef) -> Option<Lists> {
    fn pairs<T: Copy + TryInto<usize>>(offsets: &[T]) -> Vec<(usize, usize)> {
        let at = |o: T| o.try_into().unwrap_or(usize::MAX);
        offsets.windows(2).map(|w| (at(w[0]), at(w[1]))).collect()
    }
    match array.data_type() {
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            Some((pairs(list.value_offsets()), Arc::clone(list.values())))
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            Some((pairs(list.value_offsets()), Arc::clone(list.values())))
        }
        DataType::FixedSizeList(_, n) => {
            let list = array.as_fixed_size_list();
            // The child of a slice is itself sliced, so rows count from its beginning.
            let n = *n as usize;
            Some(((0..list.len()).map(|i| (i * n, (i + 1) * n)).collect(), Arc::clone(list.values())))
        }
        _ => None,
    }
}

fn vectors(array: &ArrayRef, dim: usize) -> Result<Vec<f32>, Fault> {
    let ty = array.data_type();
    let wrong = || Fault::all(format!("a vector is a list of f16, f32 or f64, not {ty}"));
    let Some((ranges, elements)) = lists(array) else { return Err(wrong()) };
    let mut out = Vec::with_capacity(ranges.len().saturating_mul(dim).min(elements.len()));
    for (row, (start, end)) in ranges.into_iter().enumerate() {
        if array.is_null(row) {
            return Err(Fault::at(row, "the vector is null"));
        }
        if end - start != dim {
            return Err(Fault::at(row, format!("the vector has {} elements, not {dim}", end - start)));
        }
        if let Some(i) = (start..end).find(|&i| elements.is_null(i)) {
            return Err(Fault::at(row, format!("element {} is null", i - start)));
        }
        let from = out.len();
        match elements.data_type() {
            DataType::Float32 => {
                out.extend_from_slice(&elements.as_primitive::<Float32Type>().values()[start..end]);
            }
            DataType::Float16 => {
                let values = &elements.as_primitive::<Float16Type>().values()[start..end];
                out.extend(values.iter().map(|v| v.to_f32()));
            }
            DataType::Float64 => {
                let values = &elements.as_primitive::<Float64Type>().values()[start..end];
                let over = |v: &&f64| v.is_finite() && (**v as f32).is_infinite();
                if let Some(v) = values.iter().find(over) {
                    return Err(Fault::at(row, format!("{v} does not fit in f32")));
                }
                out.extend(values.iter().map(|v| *v as f32));
            }
            _ => return Err(wrong()),
        }
        if let Some(at) = out[from..].iter().position(|v| !v.is_finite()) {
            return Err(Fault::at(row, format!("element {at} is {}", out[from + at])));
        }
    }
    Ok(out)
}

/// Type and canonical array of an attribute column; None for a column of Arrow's null type.
fn attribute(array: &ArrayRef) -> Result<Option<(AttributeType, ArrayRef)>, Fault> {
    if *array.data_type() == DataType::Null {
        return Ok(None);
    }
    let Some((ranges, elements)) = lists(array) else { return scalar(&plain(array)?).map(Some) };
    // Only elements of rows that have a value are looked at.
    let mut indices: Vec<u64> = Vec::new();
    let mut offsets: Vec<i32> = vec![0];
    for (row, (start, end)) in ranges.into_iter().enumerate() {
        if array.is_valid(row) {
            if end > elements.len() {
                return Err(Fault::at(row, "the list does not lie in its column"));
            }
            indices.extend(start as u64..end as u64);
        }
        offsets.push(
            i32::try_from(indices.len()).map_err(|_| Fault::at(row, "the lists have too many elements"))?,
        );
    }
    let elements = arrow_select::take::take(&elements, &UInt64Array::from(indices), None)
        .map_err(|_| unsupported(array.data_type()))?;
    // Position of an element to position of its row.
    let row_of = |at: usize| offsets.partition_point(|&o| o as usize <= at) - 1;
    if let Some(at) = (0..elements.len()).find(|&i| elements.is_null(i)) {
        return Err(Fault::at(row_of(at), "an element of the list is null"));
    }
    if *elements.data_type() == DataType::Null {
        return Err(unsupported(array.data_type()));
    }
    let (ty, values) = plain(&elements)
        .and_then(|elements| scalar(&elements))
        .map_err(|fault| Fault { at: fault.at.map(row_of), what: fault.what })?;
    let ty = match ty {
        AttributeType::Bool => AttributeType::BoolList,
        AttributeType::Int64 => AttributeType::Int64List,
        AttributeType::Float64 => AttributeType::Float64List,
        AttributeType::String => AttributeType::StringList,
        _ => return Err(unsupported(array.data_type())),
    };
    let item = Arc::new(Field::new("item", values.data_type().clone(), false));
    let nulls =
        (array.null_count() > 0).then(|| (0..array.len()).map(|i| array.is_valid(i)).collect::<NullBuffer>());
    let list = ListArray::try_new(item, OffsetBuffer::new(offsets.into()), values, nulls);
    Ok(Some((ty, Arc::new(list.map_err(|_| unsupported(array.data_type()))?))))
}

/// Type and canonical array of an array without lists, dictionaries and views.
fn scalar(array: &ArrayRef) -> Result<(AttributeType, ArrayRef), Fault> {
    let (ty, array) = match array.data_type() {
        DataType::Boolean => (AttributeType::Bool, Arc::clone(array)),
        ty if ty.is_integer() => (
            AttributeType::Int64,
            cast(array, &DataType::Int64, "the value does not fit in a signed 64-bit integer")?,
        ),
        DataType::Float16 | DataType::Float32 | DataType::Float64 => {
            (AttributeType::Float64, cast(array, &DataType::Float64, "the value is not a number")?)
        }
        DataType::Utf8 | DataType::LargeUtf8 => {
            (AttributeType::String, cast(array, &DataType::Utf8, "the text is too long")?)
        }
        DataType::Binary | DataType::LargeBinary | DataType::FixedSizeBinary(_) => {
            (AttributeType::Bytes, cast(array, &DataType::Binary, "the value is too long")?)
        }
        DataType::Timestamp(..) | DataType::Date32 | DataType::Date64 => {
            (AttributeType::Timestamp, Arc::new(micros(array)?) as ArrayRef)
        }
        ty => return Err(unsupported(ty)),
    };
    debug_assert_eq!(array.data_type(), &data_type(ty));
    Ok((ty, canonical(ty, &array)))
}

/// Microseconds since 1970. Nanoseconds are rounded down.
fn micros(array: &ArrayRef) -> Result<TimestampMicrosecondArray, Fault> {
    const DAY: i64 = 86_400_000_000;
    let scaled = |values: Int64Array, factor: i64| -> Result<TimestampMicrosecondArray, Fault> {
        let mut out = Vec::with_capacity(values.len());
        for (i, value) in values.iter().enumerate() {
            let value = value.unwrap_or(0).checked_mul(factor);
            out.push(value.ok_or_else(|| Fault::at(i, "the time is out of range"))?);
        }
        Ok(TimestampMicrosecondArray::new(ScalarBuffer::from(out), values.nulls().cloned())
            .with_timezone("UTC"))
    };
    match array.data_type() {
        DataType::Date32 => {
            let days = array.as_primitive::<Date32Type>().iter().map(|d| d.map(i64::from)).collect();
            scaled(days, DAY)
        }
        DataType::Date64 => scaled(array.as_primitive::<Date64Type>().iter().collect(), 1000),
        DataType::Timestamp(TimeUnit::Second, _) => {
            scaled(array.as_primitive::<TimestampSecondType>().iter().collect(), 1_000_000)
        }
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            scaled(array.as_primitive::<TimestampMillisecondType>().iter().collect(), 1000)
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            scaled(array.as_primitive::<TimestampMicrosecondType>().iter().collect(), 1)
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            let nanos = array.as_primitive::<TimestampNanosecondType>();
            let micros: arrow_array::PrimitiveArray<Int64Type> =
                nanos.iter().map(|v| v.map(|v| v.div_euclid(1000))).collect();
            scaled(micros, 1)
        }
        ty => Err(unsupported(ty)),
    }
}
