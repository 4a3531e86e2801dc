//! Records in memory: ids, vectors as one flat f32 buffer, attributes as canonical Arrow columns.

mod arrow;
mod builder;
mod import;
#[cfg(test)]
mod tests;
mod validate;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef, UInt32Array};

pub(crate) use self::arrow::{
    attribute_field, ids_from_arrays, ids_to_arrays, new_null, vector_field, vector_from_array,
    vector_to_array,
};
pub use self::builder::RowsBuilder;
pub use self::validate::check_vector;
use crate::error::InputError;
use crate::ids::RecordId;
use crate::value::{AttributeType, Value, check_name};

/// One attribute of all records of a [`Rows`].
#[derive(Clone, Debug)]
pub struct Column {
    pub(crate) name: String,
    pub(crate) ty: AttributeType,
    pub(crate) array: ArrayRef,
}

impl PartialEq for Column {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.ty == other.ty && *self.array == *other.array
    }
}

impl Column {
    /// The attribute's name, as the caller gave it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its type.
    pub fn attribute_type(&self) -> AttributeType {
        self.ty
    }

    /// Its values as a canonical Arrow array (Boolean, Int64, Float64, Utf8, Timestamp(us, UTC), Binary, or a
    /// List of the first four with elements that are never null).
    pub fn array(&self) -> &ArrayRef {
        &self.array
    }

    /// Value of one record; None when absent. Panics when `row` is out of range.
    pub fn value(&self, row: usize) -> Option<Value> {
        value_at(self.ty, &self.array, row)
    }
}

/// Value at `row` of a canonical array of type `ty`.
pub(crate) fn value_at(ty: AttributeType, array: &ArrayRef, row: usize) -> Option<Value> {
    if array.is_null(row) {
        return None;
    }
    let list = || array.as_list::<i32>().value(row);
    Some(match ty {
        AttributeType::Bool => Value::Bool(array.as_boolean().value(row)),
        AttributeType::Int64 => Value::Int64(array.as_primitive::<Int64Type>().value(row)),
        AttributeType::Float64 => Value::Float64(array.as_primitive::<Float64Type>().value(row)),
        AttributeType::String => Value::String(array.as_string::<i32>().value(row).to_owned()),
        AttributeType::Timestamp => {
            Value::Timestamp(array.as_primitive::<TimestampMicrosecondType>().value(row))
        }
        AttributeType::Bytes => Value::Bytes(array.as_binary::<i32>().value(row).to_vec()),
        AttributeType::BoolList => Value::BoolList(list().as_boolean().values().iter().collect()),
        AttributeType::Int64List => Value::Int64List(list().as_primitive::<Int64Type>().values().to_vec()),
        AttributeType::Float64List => {
            Value::Float64List(list().as_primitive::<Float64Type>().values().to_vec())
        }
        AttributeType::StringList => {
            let list = list();
            let strings = list.as_string::<i32>();
            Value::StringList((0..strings.len()).map(|i| strings.value(i).to_owned()).collect())
        }
    })
}

/// A batch of records. Attribute columns are sorted by name, unique, and hold at least one value each.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    dim: usize,
    ids: Vec<RecordId>,
    vectors: Vec<f32>,
    columns: Vec<Column>,
}

impl Rows {
    /// Joins checked parts: `vectors` holds `ids.len()` × `dim` elements, each column `ids.len()` values.
    /// Columns without any value are left out.
    pub(crate) fn from_parts(
        dim: usize,
        ids: Vec<RecordId>,
        vectors: Vec<f32>,
        mut columns: Vec<Column>,
    ) -> Result<Self, InputError> {
        debug_assert_eq!(vectors.len(), ids.len() * dim);
        columns.retain(|c| c.array.null_count() < c.array.len());
        columns.sort_by(|a, b| a.name.cmp(&b.name));
        for column in &columns {
            check_name(&column.name)?;
        }
        if let Some(pair) = columns.windows(2).find(|pair| pair[0].name == pair[1].name) {
            return Err(InputError::column(&pair[0].name, "two columns have this name"));
        }
        Ok(Self { dim, ids, vectors, columns })
    }

    /// No records.
    pub fn empty(dim: usize) -> Self {
        Self { dim, ids: Vec::new(), vectors: Vec::new(), columns: Vec::new() }
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// True when there is no record.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Elements of a vector.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Ids, one a record. The same id may occur more than once; the later record counts.
    pub fn ids(&self) -> &[RecordId] {
        &self.ids
    }

    /// All vectors, row-major: `len() * dim()` elements.
    pub fn vectors(&self) -> &[f32] {
        &self.vectors
    }

    /// One vector. Panics when `row` is out of range.
    pub fn vector(&self, row: usize) -> &[f32] {
        &self.vectors[row * self.dim..(row + 1) * self.dim]
    }

    /// Attribute columns, sorted by name.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// One attribute column.
    pub fn column(&self, name: &str) -> Option<&Column> {
        let at = self.columns.binary_search_by(|c| c.name.as_str().cmp(name)).ok()?;
        Some(&self.columns[at])
    }

    /// Attribute of one record; None when absent.
    pub fn value(&self, row: usize, name: &str) -> Option<Value> {
        self.column(name)?.value(row)
    }

    /// All attributes of one record that have a value.
    pub fn attributes(&self, row: usize) -> BTreeMap<String, Value> {
        self.columns.iter().filter_map(|c| Some((c.name.clone(), c.value(row)?))).collect()
    }

    /// Names and types of the attributes, for [`crate::AttributeSchema::add_all`].
    pub fn fields(&self) -> impl Iterator<Item = (&str, AttributeType)> + '_ {
        self.columns.iter().map(|c| (c.name.as_str(), c.ty))
    }

    /// Records `range`, in order.
    pub fn slice(&self, range: Range<usize>) -> Self {
        let indices: Vec<u32> = range.map(|i| i as u32).collect();
        self.take(&indices)
    }

    /// The records at `indices`, in that order. Panics when one is out of range.
    pub fn take(&self, indices: &[u32]) -> Self {
        let mut vectors = Vec::with_capacity(indices.len() * self.dim);
        let mut ids = Vec::with_capacity(indices.len());
        for &i in indices {
            ids.push(self.ids[i as usize].clone());
            vectors.extend_from_slice(self.vector(i as usize));
        }
        let indices = UInt32Array::from(indices.to_vec());
        let columns = self
            .columns
            .iter()
            .map(|c| {
                let array = arrow_select::take::take(&c.array, &indices, None)
                    .expect("indices are in range, as checked by the ids above");
                Column { array: self::arrow::canonical(c.ty, &array), ..c.clone() }
            })
            .collect();
        Self::from_parts(self.dim, ids, vectors, columns).expect("columns keep their names")
    }

    /// The records of all `parts`, in order. An attribute that a part lacks is absent in its records; two
    /// types for one attribute are an error.
    pub fn concat(dim: usize, parts: &[&Rows]) -> Result<Self, InputError> {
        let mut types: BTreeMap<&str, AttributeType> = BTreeMap::new();
        for part in parts {
            for (name, ty) in part.fields() {
                if let Some(old) = types.insert(name, ty).filter(|old| *old != ty) {
                    return Err(InputError::column(name, format!("its type is {old}, not {ty}")));
                }
            }
        }
        let mut columns = Vec::with_capacity(types.len());
        for (name, ty) in types {
            let arrays: Vec<ArrayRef> = parts
                .iter()
                .map(|part| {
                    part.column(name).map_or_else(|| new_null(ty, part.len()), |c| Arc::clone(&c.array))
                })
                .collect();
            let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
            let array = arrow_select::concat::concat(&arrays)
                .map_err(|_| InputError::column(name, "the values of one batch exceed 2 GiB"))?;
            columns.push(Column { name: name.to_owned(), ty, array: self::arrow::canonical(ty, &array) });
        }
        let ids = parts.iter().flat_map(|p| p.ids.iter().cloned()).collect();
        let vectors = parts.iter().flat_map(|p| p.vectors.iter().copied()).collect();
        Self::from_parts(dim, ids, vectors, columns)
    }
}
