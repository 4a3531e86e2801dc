//! The canonical Arrow form of records: one layout of columns, zeros under nulls, no slices, no views.

use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, BooleanBuilder, ListBuilder, PrimitiveBuilder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int64Type, TimestampMicrosecondType, UInt64Type};
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, BooleanArray, FixedSizeListArray, Float32Array, PrimitiveArray,
    RecordBatch, StringArray, UInt64Array,
};
use arrow_buffer::{NullBuffer, ScalarBuffer};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{DataType, Field, Schema, TimeUnit};

use crate::arrow_message::{aligned, next_message, record_batch, schema};
use crate::error::{FormatError, InputError, ObjectKind};
use crate::ids::RecordId;
use crate::rows::{Column, Rows};
use crate::value::{AttributeType, canonical_f64};

/// Prefix of attribute columns, so that no attribute clashes with the fixed columns.
pub(crate) const ATTRIBUTE_PREFIX: &str = "attr.";

/// Arrow type of an attribute's column.
pub(crate) fn data_type(ty: AttributeType) -> DataType {
    let list = |item: DataType| DataType::List(Arc::new(Field::new("item", item, false)));
    match ty {
        AttributeType::Bool => DataType::Boolean,
        AttributeType::Int64 => DataType::Int64,
        AttributeType::Float64 => DataType::Float64,
        AttributeType::String => DataType::Utf8,
        AttributeType::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        AttributeType::Bytes => DataType::Binary,
        AttributeType::BoolList => list(DataType::Boolean),
        AttributeType::Int64List => list(DataType::Int64),
        AttributeType::Float64List => list(DataType::Float64),
        AttributeType::StringList => list(DataType::Utf8),
    }
}

/// The attribute type of a canonical column.
pub(crate) fn attribute_type(data_type: &DataType) -> Option<AttributeType> {
    use AttributeType as T;
    [
        T::Bool,
        T::Int64,
        T::Float64,
        T::String,
        T::Timestamp,
        T::Bytes,
        T::BoolList,
        T::Int64List,
        T::Float64List,
        T::StringList,
    ]
    .into_iter()
    .find(|&ty| self::data_type(ty) == *data_type)
}

pub(crate) fn attribute_field(name: &str, ty: AttributeType) -> Field {
    Field::new(format!("{ATTRIBUTE_PREFIX}{name}"), data_type(ty), true)
}

pub(crate) fn vector_field(dim: usize) -> Field {
    Field::new("vector", vector_type(dim), false)
}

fn vector_type(dim: usize) -> DataType {
    DataType::FixedSizeList(Arc::new(Field::new("item", DataType::Float32, false)), dim as i32)
}

/// An all-null canonical column.
pub(crate) fn new_null(ty: AttributeType, len: usize) -> ArrayRef {
    canonical(ty, &arrow_array::new_null_array(&data_type(ty), len))
}

fn nulls(array: &dyn Array) -> Option<NullBuffer> {
    if array.null_count() == 0 {
        return None;
    }
    Some((0..array.len()).map(|i| array.is_valid(i)).collect())
}

fn primitive<T: ArrowPrimitiveType>(
    array: &ArrayRef,
    fix: impl Fn(T::Native) -> T::Native,
) -> PrimitiveArray<T> {
    let array = array.as_primitive::<T>();
    let values: Vec<T::Native> = array.iter().map(|v| v.map_or(T::Native::default(), &fix)).collect();
    PrimitiveArray::new(ScalarBuffer::from(values), nulls(array))
}

fn list<B: arrow_array::builder::ArrayBuilder>(
    array: &ArrayRef,
    item: DataType,
    values: B,
    append: impl Fn(&mut B, &ArrayRef),
) -> ArrayRef {
    let array = array.as_list::<i32>();
    let mut builder = ListBuilder::new(values).with_field(Arc::new(Field::new("item", item, false)));
    for i in 0..array.len() {
        if array.is_valid(i) {
            append(builder.values(), &array.value(i));
        }
        builder.append(array.is_valid(i));
    }
    Arc::new(builder.finish())
}

/// Rebuilds an array of the canonical type: own buffers, zeros under nulls, no validity without nulls.
pub(crate) fn canonical(ty: AttributeType, array: &ArrayRef) -> ArrayRef {
    match ty {
        AttributeType::Bool => Arc::new(booleans(array)),
        AttributeType::Int64 => Arc::new(primitive::<Int64Type>(array, |v| v)),
        AttributeType::Float64 => Arc::new(primitive::<Float64Type>(array, canonical_f64)),
        AttributeType::Timestamp => {
            Arc::new(primitive::<TimestampMicrosecondType>(array, |v| v).with_timezone("UTC"))
        }
        AttributeType::String => Arc::new(strings(array)),
        AttributeType::Bytes => {
            let mut builder = BinaryBuilder::new();
            array.as_binary::<i32>().iter().for_each(|v| builder.append_option(v));
            Arc::new(builder.finish())
        }
        AttributeType::BoolList => list(array, DataType::Boolean, BooleanBuilder::new(), |out, items| {
            items.as_boolean().values().iter().for_each(|v| out.append_value(v));
        }),
        AttributeType::Int64List => {
            list(array, DataType::Int64, PrimitiveBuilder::<Int64Type>::new(), |out, items| {
                out.append_slice(items.as_primitive::<Int64Type>().values());
            })
        }
        AttributeType::Float64List => {
            list(array, DataType::Float64, PrimitiveBuilder::<Float64Type>::new(), |out, items| {
                items
                    .as_primitive::<Float64Type>()
                    .values()
                    .iter()
                    .for_each(|&v| out.append_value(canonical_f64(v)));
            })
        }
        AttributeType::StringList => list(array, DataType::Utf8, StringBuilder::new(), |out, items| {
            items.as_string::<i32>().iter().for_each(|v| out.append_value(v.unwrap_or_default()));
        }),
    }
}

fn booleans(array: &ArrayRef) -> BooleanArray {
    let array = array.as_boolean();
    let values = (0..array.len()).map(|i| array.is_valid(i) && array.value(i)).collect();
    BooleanArray::new(values, nulls(array))
}

fn strings(array: &ArrayRef) -> StringArray {
    let mut builder = StringBuilder::new();
    array.as_string::<i32>().iter().for_each(|v| builder.append_option(v));
    builder.finish()
}

/// The two id columns: each record has exactly one of them.
pub(crate) fn ids_to_arrays<'a>(
    ids: impl Iterator<Item = &'a RecordId> + Clone,
) -> (UInt64Array, StringArray) {
    let numbers: Vec<u64> = ids.clone().map(|id| if let RecordId::U64(n) = id { *n } else { 0 }).collect();
    let is_number: Vec<bool> = ids.clone().map(|id| matches!(id, RecordId::U64(_))).collect();
    let valid = is_number.contains(&false).then(|| NullBuffer::from(is_number));
    let mut strings = StringBuilder::new();
    ids.for_each(|id| strings.append_option(if let RecordId::Str(s) = id { Some(s) } else { None }));
    (UInt64Array::new(ScalarBuffer::from(numbers), valid), strings.finish())
}

pub(crate) fn ids_from_arrays(numbers: &ArrayRef, strings: &ArrayRef) -> Result<Vec<RecordId>, &'static str> {
    const BOTH: &str = "a record does not have exactly one id";
    let numbers = numbers.as_primitive_opt::<UInt64Type>().ok_or("id_u64 has another type")?;
    let strings = strings.as_string_opt::<i32>().ok_or("id_string has another type")?;
    (0..numbers.len())
        .map(|i| {
            let id = match (numbers.is_valid(i), strings.is_valid(i)) {
                (true, false) => RecordId::U64(numbers.value(i)),
                (false, true) => RecordId::Str(strings.value(i).to_owned()),
                _ => return Err(BOTH),
            };
            if id.check().is_err() { Err("a string id is empty or too long") } else { Ok(id) }
        })
        .collect()
}

pub(crate) fn vector_to_array(dim: usize, vectors: Vec<f32>) -> FixedSizeListArray {
    let item = Arc::new(Field::new("item", DataType::Float32, false));
    FixedSizeListArray::new(item, dim as i32, Arc::new(Float32Array::from(vectors)), None)
}

/// The flat elements of a canonical vector column.
pub(crate) fn vector_from_array(array: &ArrayRef, dim: usize) -> Result<&[f32], &'static str> {
    let list = array.as_fixed_size_list_opt().ok_or("vector has another type")?;
    let values = list.values().as_primitive_opt::<Float32Type>().ok_or("vector has another type")?;
    if list.value_length() as usize != dim || list.null_count() > 0 || values.null_count() > 0 {
        return Err("vector has another dimension or nulls");
    }
    // The child of a slice is itself sliced.
    values.values().get(..list.len() * dim).ok_or("vector is cut short")
}

impl Rows {
    /// The canonical record batch: `id_u64`, `id_string` (each nullable, exactly one set), `vector`, then
    /// `attr.<name>` sorted by name.
    pub fn to_record_batch(&self) -> Result<RecordBatch, FormatError> {
        let too_large = |what: &str| FormatError::invalid(ObjectKind::Body, what);
        let text: usize = self.ids.iter().map(|id| if let RecordId::Str(s) = id { s.len() } else { 0 }).sum();
        if text > i32::MAX as usize || self.vectors.len() > i32::MAX as usize {
            return Err(too_large("its ids or vectors exceed 2^31"));
        }
        let (numbers, strings) = ids_to_arrays(self.ids.iter());
        let mut fields = vec![
            Field::new("id_u64", DataType::UInt64, true),
            Field::new("id_string", DataType::Utf8, true),
            vector_field(self.dim),
        ];
        let vectors = vector_to_array(self.dim, self.vectors.clone());
        let mut arrays: Vec<ArrayRef> = vec![Arc::new(numbers), Arc::new(strings), Arc::new(vectors)];
        for column in &self.columns {
            fields.push(attribute_field(&column.name, column.ty));
            arrays.push(Arc::clone(&column.array));
        }
        RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
            .map_err(|_| too_large("its columns do not fit together"))
    }

    /// The body of a log entry: an uncompressed Arrow IPC stream of the canonical record batch.
    pub fn to_body(&self) -> Result<Vec<u8>, FormatError> {
        let batch = self.to_record_batch()?;
        let sink =
            |e: arrow_schema::ArrowError| FormatError::Sink { kind: ObjectKind::Body, what: e.to_string() };
        let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).map_err(sink)?;
        writer.write(&batch).map_err(sink)?;
        writer.into_inner().map_err(sink)
    }

    /// Reads a body whose hash has been checked (see [`crate::Body::rows`]).
    pub(crate) fn from_body(bytes: &[u8], dim: usize) -> Result<Self, FormatError> {
        Self::read_body(bytes, dim).map_err(|what| FormatError::damaged(ObjectKind::Body, what))
    }

    fn read_body(bytes: &[u8], dim: usize) -> Result<Self, String> {
        let (Some(first), rest) = next_message(bytes)? else { return Err("it has no schema".into()) };
        let (Some(second), rest) = next_message(rest)? else { return Err("it has no record batch".into()) };
        if !matches!(next_message(rest)?, (None, [])) {
            return Err("something follows its record batch".into());
        }
        // The schema is checked before any array is made: only canonical types get that far.
        let schema = schema(&first)?;
        check_schema(&schema, dim)?;
        let batch = record_batch(Arc::new(schema), aligned(second.bytes), second.meta_len, None)?;
        Self::from_canonical(&batch, dim)
    }

    /// Reads a batch of a schema that [`check_schema`] has passed.
    fn from_canonical(batch: &RecordBatch, dim: usize) -> Result<Self, String> {
        let ids = ids_from_arrays(batch.column(0), batch.column(1))?;
        let vectors = vector_from_array(batch.column(2), dim)?.to_vec();
        if vectors.iter().any(|x| !x.is_finite()) {
            return Err("a vector holds NaN or infinity".into());
        }
        let mut columns = Vec::with_capacity(batch.num_columns() - 3);
        for (field, array) in batch.schema_ref().fields()[3..].iter().zip(&batch.columns()[3..]) {
            let (name, ty) = attribute_of(field)?;
            columns.push(Column { name: name.to_owned(), ty, array: canonical(ty, array) });
        }
        Self::from_parts(dim, ids, vectors, columns).map_err(|e: InputError| e.to_string())
    }
}

fn attribute_of(field: &Field) -> Result<(&str, AttributeType), &'static str> {
    let name = field.name().strip_prefix(ATTRIBUTE_PREFIX).ok_or("an attribute column lacks its prefix")?;
    let ty = attribute_type(field.data_type()).ok_or("an attribute column has another type")?;
    Ok((name, ty))
}

/// Checks that a schema is that of [`Rows::to_record_batch`].
fn check_schema(schema: &Schema, dim: usize) -> Result<(), &'static str> {
    let fixed = [
        Field::new("id_u64", DataType::UInt64, true),
        Field::new("id_string", DataType::Utf8, true),
        vector_field(dim),
    ];
    let fields = schema.fields();
    if fields.len() < fixed.len() || fixed.iter().zip(fields).any(|(a, b)| a != b.as_ref()) {
        return Err("its columns are not the canonical ones");
    }
    fields[fixed.len()..].iter().try_for_each(|field| attribute_of(field).map(|_| ()))
}
