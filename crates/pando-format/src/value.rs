//! Attribute values and types, and the collection's attribute schema.

use std::collections::BTreeMap;
use std::fmt;

use crate::codec::{Bad, Codec, Reader, code, record};
use crate::error::InputError;

/// Most bytes of attributes in one record (see [`crate::rows::Rows::attribute_bytes`]).
pub const MAX_ATTRIBUTE_BYTES: usize = 64 * 1024;
/// Longest attribute name in bytes.
pub const MAX_ATTRIBUTE_NAME: usize = 255;
/// Most attributes of one collection. Bounds the manifest and a segment's schema.
pub const MAX_ATTRIBUTES: usize = 1024;

/// Type of an attribute. Fixed by its first appearance in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AttributeType {
    /// True or false.
    Bool,
    /// Signed 64-bit integer.
    Int64,
    /// Double. NaN is kept as one bit pattern.
    Float64,
    /// UTF-8.
    String,
    /// Microseconds since 1970-01-01T00:00:00Z.
    Timestamp,
    /// Raw bytes.
    Bytes,
    /// List of booleans.
    BoolList,
    /// List of integers.
    Int64List,
    /// List of doubles.
    Float64List,
    /// List of strings.
    StringList,
}

code!(AttributeType {
    AttributeType::Bool = 1,
    AttributeType::Int64 = 2,
    AttributeType::Float64 = 3,
    AttributeType::String = 4,
    AttributeType::Timestamp = 5,
    AttributeType::Bytes = 6,
    AttributeType::BoolList = 7,
    AttributeType::Int64List = 8,
    AttributeType::Float64List = 9,
    AttributeType::StringList = 10,
});

impl fmt::Display for AttributeType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bool => "bool",
            Self::Int64 => "int64",
            Self::Float64 => "float64",
            Self::String => "string",
            Self::Timestamp => "timestamp",
            Self::Bytes => "bytes",
            Self::BoolList => "list of bool",
            Self::Int64List => "list of int64",
            Self::Float64List => "list of float64",
            Self::StringList => "list of string",
        })
    }
}

/// Value of an attribute. An absent attribute and a null are the same thing and have no value.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // the variants are those of AttributeType
pub enum Value {
    Bool(bool),
    Int64(i64),
    Float64(f64),
    String(String),
    Timestamp(i64),
    Bytes(Vec<u8>),
    BoolList(Vec<bool>),
    Int64List(Vec<i64>),
    Float64List(Vec<f64>),
    StringList(Vec<String>),
}

impl Value {
    /// The value's type.
    pub fn attribute_type(&self) -> AttributeType {
        match self {
            Self::Bool(_) => AttributeType::Bool,
            Self::Int64(_) => AttributeType::Int64,
            Self::Float64(_) => AttributeType::Float64,
            Self::String(_) => AttributeType::String,
            Self::Timestamp(_) => AttributeType::Timestamp,
            Self::Bytes(_) => AttributeType::Bytes,
            Self::BoolList(_) => AttributeType::BoolList,
            Self::Int64List(_) => AttributeType::Int64List,
            Self::Float64List(_) => AttributeType::Float64List,
            Self::StringList(_) => AttributeType::StringList,
        }
    }

    /// Size counted against the limit of a record: 8 bytes a number, the length of text and bytes, and 8
    /// bytes more for each string in a list.
    pub fn size(&self) -> usize {
        match self {
            Self::Bool(_) | Self::Int64(_) | Self::Float64(_) | Self::Timestamp(_) => 8,
            Self::String(s) => s.len(),
            Self::Bytes(b) => b.len(),
            Self::BoolList(l) => 8 * l.len(),
            Self::Int64List(l) => 8 * l.len(),
            Self::Float64List(l) => 8 * l.len(),
            Self::StringList(l) => l.iter().map(|s| 8 + s.len()).sum(),
        }
    }
}

/// The one NaN that is stored.
pub fn canonical_f64(x: f64) -> f64 {
    if x.is_nan() { f64::from_bits(0x7ff8_0000_0000_0000) } else { x }
}

record! {
    /// Name and type of an attribute.
    #[derive(Eq, PartialOrd, Ord, Hash)]
    pub struct AttributeField {
        /// Name as the caller gave it.
        pub name: String,
        /// Its type.
        pub ty: AttributeType,
    }
}

/// The attributes of a collection: name to type, sorted by name. Types are never changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttributeSchema(BTreeMap<String, AttributeType>);

impl AttributeSchema {
    /// Type of an attribute, if any record ever had it.
    pub fn get(&self, name: &str) -> Option<AttributeType> {
        self.0.get(name).copied()
    }

    /// Attributes by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, AttributeType)> + '_ {
        self.0.iter().map(|(name, ty)| (name.as_str(), *ty))
    }

    /// Number of attributes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True when no record ever had an attribute.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds an attribute, or checks that it has its earlier type. On an error nothing is changed.
    pub fn add(&mut self, name: &str, ty: AttributeType) -> Result<(), InputError> {
        check_name(name)?;
        match self.0.get(name) {
            Some(&old) if old == ty => Ok(()),
            Some(old) => Err(InputError::column(name, format!("its type is {old}, not {ty}"))),
            None if self.0.len() >= MAX_ATTRIBUTES => {
                let what = format!("the collection has its most of {MAX_ATTRIBUTES} attributes");
                Err(InputError::column(name, what))
            }
            None => {
                self.0.insert(name.to_owned(), ty);
                Ok(())
            }
        }
    }

    /// Adds all attributes of `fields`, or none of them.
    pub fn add_all<'a>(
        &mut self,
        fields: impl IntoIterator<Item = (&'a str, AttributeType)>,
    ) -> Result<(), InputError> {
        let mut next = self.clone();
        for (name, ty) in fields {
            next.add(name, ty)?;
        }
        *self = next;
        Ok(())
    }
}

/// Checks an attribute's name: 1–255 bytes.
pub fn check_name(name: &str) -> Result<(), InputError> {
    match name.len() {
        0 => Err(InputError::batch("an attribute has an empty name")),
        n if n > MAX_ATTRIBUTE_NAME => {
            Err(InputError::batch(format!("an attribute name has {n} bytes, more than {MAX_ATTRIBUTE_NAME}")))
        }
        _ => Ok(()),
    }
}

impl Codec for AttributeSchema {
    const MIN: usize = 4;
    fn put(&self, out: &mut Vec<u8>) {
        let fields: Vec<_> =
            self.iter().map(|(name, ty)| AttributeField { name: name.to_owned(), ty }).collect();
        fields.put(out);
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, Bad> {
        let fields = Vec::<AttributeField>::take(r)?;
        if !fields.is_sorted_by(|a, b| a.name < b.name) {
            return Err("attributes are not sorted by name");
        }
        let mut schema = Self::default();
        for field in fields {
            schema.add(&field.name, field.ty).map_err(|_| "an attribute's name is not valid")?;
        }
        Ok(schema)
    }
}
