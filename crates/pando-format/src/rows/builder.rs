//! Rows from single records, as they come in by gRPC.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::builder::{
    BinaryBuilder, BooleanBuilder, Float64Builder, Int64Builder, ListBuilder, StringBuilder,
    TimestampMicrosecondBuilder,
};
use arrow_schema::{DataType, Field};

use crate::error::InputError;
use crate::ids::RecordId;
use crate::rows::{Column, Rows};
use crate::value::{AttributeType, MAX_ATTRIBUTE_BYTES, Value, canonical_f64, check_name};

/// Collects records and checks each. An error names the record by position and id and the column.
#[derive(Debug)]
pub struct RowsBuilder {
    dim: usize,
    ids: Vec<RecordId>,
    vectors: Vec<f32>,
    columns: BTreeMap<String, (AttributeType, Vec<Option<Value>>)>,
}

impl RowsBuilder {
    /// An empty builder for vectors of `dim` elements.
    pub fn new(dim: usize) -> Self {
        Self { dim, ids: Vec::new(), vectors: Vec::new(), columns: BTreeMap::new() }
    }

    /// Adds a record, or says why not and adds nothing. Attributes may be given in any order.
    pub fn push<'a>(
        &mut self,
        id: RecordId,
        vector: &[f32],
        attributes: impl IntoIterator<Item = (&'a str, &'a Value)>,
    ) -> Result<(), InputError> {
        let row = self.ids.len();
        id.check().map_err(|e| InputError::row(row, "id", e.what))?;
        let bad = |column: &str, what: String| InputError::row(row, column, what).with_id(&id);
        if vector.len() != self.dim {
            let what = format!("the vector has {} elements, not {}", vector.len(), self.dim);
            return Err(bad("vector", what));
        }
        if let Some(at) = vector.iter().position(|x| !x.is_finite()) {
            return Err(bad("vector", format!("element {at} is {}", vector[at])));
        }
        let attributes: Vec<(&str, &Value)> = attributes.into_iter().collect();
        let mut bytes = 0;
        for (i, (name, value)) in attributes.iter().enumerate() {
            check_name(name).map_err(|e| bad(name, e.what))?;
            bytes += name.len() + value.size();
            if attributes[..i].iter().any(|(other, _)| other == name) {
                return Err(bad(name, "the attribute is given twice".into()));
            }
            let ty = value.attribute_type();
            if let Some((old, _)) = self.columns.get(*name).filter(|(old, _)| *old != ty) {
                return Err(bad(name, format!("its type is {old} in an earlier record, not {ty}")));
            }
        }
        if bytes > MAX_ATTRIBUTE_BYTES {
            let what =
                format!("the attributes of a record take {bytes} bytes, more than {MAX_ATTRIBUTE_BYTES}");
            return Err(InputError { row: Some(row as u64), id: Some(id.to_string()), column: None, what });
        }
        for (name, value) in attributes {
            let (_, values) =
                self.columns.entry(name.to_owned()).or_insert_with(|| (value.attribute_type(), Vec::new()));
            values.resize(row, None);
            values.push(Some(value.clone()));
        }
        self.ids.push(id);
        self.vectors.extend_from_slice(vector);
        Ok(())
    }

    /// Records so far.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// True when nothing was added.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The records.
    pub fn finish(self) -> Result<Rows, InputError> {
        let rows = self.ids.len();
        let columns = self.columns.into_iter().map(|(name, (ty, mut values))| {
            values.resize(rows, None);
            Column { name, ty, array: array_of(ty, values) }
        });
        let columns = columns.collect();
        Rows::from_parts(self.dim, self.ids, self.vectors, columns)
    }
}

/// A canonical array of values that all have type `ty`.
fn array_of(ty: AttributeType, values: Vec<Option<Value>>) -> ArrayRef {
    macro_rules! scalar {
        ($builder:expr, $variant:ident, $fix:expr) => {{
            let mut builder = $builder;
            for value in values {
                builder.append_option(if let Some(Value::$variant(v)) = value {
                    Some($fix(v))
                } else {
                    None
                });
            }
            Arc::new(builder.finish())
        }};
    }
    macro_rules! list {
        ($builder:expr, $item:expr, $variant:ident, $fix:expr) => {{
            let mut builder =
                ListBuilder::new($builder).with_field(Arc::new(Field::new("item", $item, false)));
            for value in values {
                let items = if let Some(Value::$variant(v)) = value { Some(v) } else { None };
                let valid = items.is_some();
                for item in items.unwrap_or_default() {
                    builder.values().append_value($fix(item));
                }
                builder.append(valid);
            }
            Arc::new(builder.finish())
        }};
    }
    let array: ArrayRef = match ty {
        AttributeType::Bool => scalar!(BooleanBuilder::new(), Bool, |v| v),
        AttributeType::Int64 => scalar!(Int64Builder::new(), Int64, |v| v),
        AttributeType::Float64 => scalar!(Float64Builder::new(), Float64, canonical_f64),
        AttributeType::String => scalar!(StringBuilder::new(), String, |v: String| v),
        AttributeType::Timestamp => {
            scalar!(TimestampMicrosecondBuilder::new().with_timezone("UTC"), Timestamp, |v| v)
        }
        AttributeType::Bytes => scalar!(BinaryBuilder::new(), Bytes, |v: Vec<u8>| v),
        AttributeType::BoolList => list!(BooleanBuilder::new(), DataType::Boolean, BoolList, |v| v),
        AttributeType::Int64List => list!(Int64Builder::new(), DataType::Int64, Int64List, |v| v),
        AttributeType::Float64List => {
            list!(Float64Builder::new(), DataType::Float64, Float64List, canonical_f64)
        }
        AttributeType::StringList => list!(StringBuilder::new(), DataType::Utf8, StringList, |v: String| v),
    };
    super::arrow::canonical(ty, &array)
}
