//! JSON lines: one object a line, `{"id": 7, "vector": [0.1, …], "colour": "red", …}`. Read twice: once for the types of all
//! attributes, once for the rows.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use arrow_array::builder::{
    ArrayBuilder, BooleanBuilder, FixedSizeListBuilder, Float32Builder, Float64Builder, Int64Builder,
    ListBuilder, StringBuilder, UInt64Builder,
};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use serde_json::{Map, Value};

use super::{ReadOptions, Source};

/// A longer line is no record.
const MAX_LINE: u64 = 64 << 20;

/// What a JSON value can be as an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Bool,
    Int,
    Float,
    Text,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Bool => "true or false",
            Self::Int => "a whole number",
            Self::Float => "a number",
            Self::Text => "text",
        }
    }

    /// The kind of both; whole numbers are numbers.
    fn join(self, other: Self) -> Option<Self> {
        match (self, other) {
            (a, b) if a == b => Some(a),
            (Self::Int, Self::Float) | (Self::Float, Self::Int) => Some(Self::Float),
            _ => None,
        }
    }

    fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Bool(_) => Some(Self::Bool),
            Value::Number(number) if number.is_i64() => Some(Self::Int),
            Value::Number(_) => Some(Self::Float),
            Value::String(_) => Some(Self::Text),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        }
    }

    fn data_type(self) -> DataType {
        match self {
            Self::Bool => DataType::Boolean,
            Self::Int => DataType::Int64,
            Self::Float => DataType::Float64,
            Self::Text => DataType::Utf8,
        }
    }
}

/// An attribute's type: of one value, or of a list's elements (`None` while only empty lists were seen).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    One(Kind),
    List(Option<Kind>),
}

impl Type {
    fn of(value: &Value) -> Result<Option<Self>> {
        Ok(Some(match value {
            Value::Null => return Ok(None),
            Value::Object(_) => bail!("is an object; attributes are plain values or lists of them"),
            Value::Array(items) => {
                let mut kind = None;
                for item in items {
                    let found = Kind::of(item)
                        .context("is a list of lists, objects or nulls; lists hold plain values")?;
                    kind = Some(match kind {
                        None => found,
                        Some(before) => found.join(before).with_context(|| {
                            format!("is a list of {} and {}", before.name(), found.name())
                        })?,
                    });
                }
                Self::List(kind)
            }
            plain => Self::One(Kind::of(plain).context("is of no known type")?),
        }))
    }

    fn join(self, other: Self) -> Option<Self> {
        match (self, other) {
            (Self::One(a), Self::One(b)) => a.join(b).map(Self::One),
            (Self::List(None), list @ Self::List(_)) | (list @ Self::List(_), Self::List(None)) => Some(list),
            (Self::List(Some(a)), Self::List(Some(b))) => a.join(b).map(|kind| Self::List(Some(kind))),
            _ => None,
        }
    }
}

/// What the first reading found.
struct Layout {
    rows: u64,
    dimension: usize,
    text_ids: bool,
    attributes: BTreeMap<String, Type>,
}

pub fn open(path: &Path, options: &ReadOptions) -> Result<Source> {
    let Some(layout) = survey(path, options)? else {
        return Ok(Source { rows: Some(0), batches: Box::new(std::iter::empty()) });
    };
    let rows = layout.rows;
    let mut lines = Lines::open(path)?;
    let options = options.clone();
    let schema = Arc::new(layout.schema(&options));
    let batches = std::iter::from_fn(move || layout.batch(&schema, &mut lines, &options).transpose());
    Ok(Source { rows: Some(rows), batches: Box::new(batches) })
}

/// Lines of a file that are objects, with their numbers from 1.
struct Lines {
    reader: BufReader<File>,
    path: PathBuf,
    number: u64,
    text: Vec<u8>,
}

impl Lines {
    fn open(path: &Path) -> Result<Self> {
        let reader = BufReader::with_capacity(1 << 20, File::open(path)?);
        Ok(Self { reader, path: path.to_owned(), number: 0, text: Vec::new() })
    }

    /// The next object; empty lines are passed over.
    fn next(&mut self) -> Result<Option<Map<String, Value>>> {
        loop {
            self.text.clear();
            let read = self.reader.by_ref().take(MAX_LINE + 1).read_until(b'\n', &mut self.text);
            let read = read.with_context(|| format!("{} cannot be read on", self.path.display()))?;
            if read == 0 {
                return Ok(None);
            }
            self.number += 1;
            ensure!(read as u64 <= MAX_LINE, "line {} is longer than 64 MiB", self.number);
            if self.text.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let value = serde_json::from_slice(&self.text).map_err(|error| {
                let what = error.to_string();
                let what = what.split(" at line ").next().unwrap_or_default();
                anyhow::anyhow!(
                    "line {}, column {} is not JSON ({what}); the file holds one object a line",
                    self.number,
                    error.column()
                )
            })?;
            match value {
                Value::Object(object) => return Ok(Some(object)),
                _ => bail!("line {} is not an object like {{\"id\": 1, \"vector\": [0.5, …]}}", self.number),
            }
        }
    }
}

/// Reads all lines for their types; `None` for a file without any.
fn survey(path: &Path, options: &ReadOptions) -> Result<Option<Layout>> {
    let mut lines = Lines::open(path)?;
    let mut layout: Option<Layout> = None;
    while let Some(object) = lines.next()? {
        let number = lines.number;
        let vector = match object.get(&options.vector_column) {
            Some(Value::Array(items)) => items,
            Some(_) => bail!("line {number}: {:?} is not a list of numbers", options.vector_column),
            None => bail!(
                "line {number} has no {:?}; name the right key with --vector-column",
                options.vector_column
            ),
        };
        let text_ids = match options.id_column.as_ref().map(|column| (column, object.get(column))) {
            None | Some((_, Some(Value::String(_)))) => true,
            Some((_, Some(Value::Number(id)))) if id.is_u64() => false,
            Some((_, Some(other))) => {
                bail!("line {number}: the id is {other}; it must be text or a whole number from 0")
            }
            Some((column, None)) => {
                bail!("line {number} has no {column:?}; name the right key with --id-column")
            }
        };
        let found = layout.get_or_insert_with(|| Layout {
            rows: 0,
            dimension: vector.len(),
            text_ids,
            attributes: BTreeMap::new(),
        });
        found.rows += 1;
        ensure!(
            vector.len() == found.dimension,
            "line {number}: the vector has {} elements, those before it {}",
            vector.len(),
            found.dimension
        );
        ensure!(found.dimension > 0, "line {number}: the vector is empty");
        ensure!(
            text_ids == found.text_ids,
            "line {number}: some ids are numbers and some are text; put them into two files"
        );
        for (name, value) in object {
            if Some(&name) == options.id_column.as_ref() || name == options.vector_column {
                continue;
            }
            let ty = Type::of(&value).with_context(|| format!("line {number}: {name:?}"))?;
            let Some(ty) = ty else { continue };
            let joined = match found.attributes.get(&name) {
                None => Some(ty),
                Some(before) => before.join(ty),
            };
            let joined = joined.with_context(|| {
                format!("line {number}: {name:?} is {value}, of another type than in the lines before")
            })?;
            found.attributes.insert(name, joined);
        }
    }
    if let Some(layout) = &mut layout {
        for name in &options.float_attributes {
            match layout.attributes.get_mut(name) {
                Some(Type::One(kind @ Kind::Int)) | Some(Type::List(Some(kind @ Kind::Int))) => {
                    *kind = Kind::Float
                }
                _ => {}
            }
        }
    }
    Ok(layout)
}

/// A list of `items`, as Pando stores lists.
fn list_of(item: DataType) -> DataType {
    DataType::List(Arc::new(Field::new("item", item, true)))
}

impl Layout {
    fn schema(&self, options: &ReadOptions) -> Schema {
        let id = if self.text_ids { DataType::Utf8 } else { DataType::UInt64 };
        let item = Arc::new(Field::new("item", DataType::Float32, true));
        let vector = DataType::FixedSizeList(item, self.dimension as i32);
        let mut fields = Vec::new();
        fields.extend(options.id_column.as_ref().map(|column| Field::new(column, id, false)));
        fields.push(Field::new(&options.vector_column, vector, false));
        fields.extend(self.attributes.iter().map(|(name, ty)| {
            let ty = match ty {
                Type::One(kind) => kind.data_type(),
                Type::List(kind) => list_of(kind.unwrap_or(Kind::Text).data_type()),
            };
            Field::new(name, ty, true)
        }));
        Schema::new(fields)
    }

    /// The next batch, `None` at the end.
    fn batch(
        &self,
        schema: &Arc<Schema>,
        lines: &mut Lines,
        options: &ReadOptions,
    ) -> Result<Option<RecordBatch>> {
        let (mut objects, mut bytes) = (Vec::new(), 0);
        while bytes < options.batch_bytes {
            let Some(object) = lines.next()? else { break };
            bytes += self.dimension * 4 + lines.text.len() / 4;
            objects.push((lines.number, object));
        }
        if objects.is_empty() {
            return Ok(None);
        }
        let mut arrays = Vec::new();
        arrays.extend(options.id_column.as_ref().map(|column| self.ids(&objects, column)));
        arrays.push(self.vectors(&objects, options)?);
        for (name, ty) in &self.attributes {
            let values = objects.iter().map(|(_, object)| object.get(name));
            arrays.push(match ty {
                Type::One(kind) => plain(*kind, values),
                Type::List(kind) => lists(kind.unwrap_or(Kind::Text), values),
            });
        }
        Ok(Some(RecordBatch::try_new(schema.clone(), arrays)?))
    }

    fn ids(&self, objects: &[(u64, Map<String, Value>)], column: &str) -> ArrayRef {
        let ids = objects.iter().map(|(_, object)| object.get(column));
        // The survey saw every line; a file that changed meanwhile is refused by the server as a null id.
        if self.text_ids {
            let mut builder = StringBuilder::new();
            ids.for_each(|id| builder.append_option(id.and_then(Value::as_str)));
            Arc::new(builder.finish())
        } else {
            let mut builder = UInt64Builder::new();
            ids.for_each(|id| builder.append_option(id.and_then(Value::as_u64)));
            Arc::new(builder.finish())
        }
    }

    fn vectors(&self, objects: &[(u64, Map<String, Value>)], options: &ReadOptions) -> Result<ArrayRef> {
        let mut builder = FixedSizeListBuilder::new(Float32Builder::new(), self.dimension as i32);
        for (number, object) in objects {
            let items = object.get(&options.vector_column).and_then(Value::as_array);
            let items = items.filter(|items| items.len() == self.dimension);
            let items =
                items.with_context(|| format!("line {number}: the file changed while it was read"))?;
            for (i, item) in items.iter().enumerate() {
                let element = item.as_f64();
                let element = element.with_context(|| {
                    format!("line {number}: element {i} of the vector is {item}, not a number")
                })?;
                ensure!(
                    (element as f32).is_finite(),
                    "line {number}: element {i} of the vector is {item}, which does not fit in float32"
                );
                builder.values().append_value(element as f32);
            }
            builder.append(true);
        }
        Ok(Arc::new(builder.finish()))
    }
}

fn plain<'a>(kind: Kind, values: impl Iterator<Item = Option<&'a Value>>) -> ArrayRef {
    match kind {
        Kind::Bool => {
            let mut builder = BooleanBuilder::new();
            values.for_each(|value| builder.append_option(value.and_then(Value::as_bool)));
            Arc::new(builder.finish())
        }
        Kind::Int => {
            let mut builder = Int64Builder::new();
            values.for_each(|value| builder.append_option(value.and_then(Value::as_i64)));
            Arc::new(builder.finish())
        }
        Kind::Float => {
            let mut builder = Float64Builder::new();
            values.for_each(|value| builder.append_option(value.and_then(Value::as_f64)));
            Arc::new(builder.finish())
        }
        Kind::Text => {
            let mut builder = StringBuilder::new();
            values.for_each(|value| builder.append_option(value.and_then(Value::as_str)));
            Arc::new(builder.finish())
        }
    }
}

fn lists<'a>(kind: Kind, values: impl Iterator<Item = Option<&'a Value>>) -> ArrayRef {
    fn fill<'a, B: ArrayBuilder>(
        builder: B,
        values: impl Iterator<Item = Option<&'a Value>>,
        append: impl Fn(&mut B, &Value),
    ) -> ArrayRef {
        let mut builder = ListBuilder::new(builder);
        for value in values {
            let items = value.and_then(Value::as_array);
            items.into_iter().flatten().for_each(|item| append(builder.values(), item));
            builder.append(items.is_some());
        }
        Arc::new(builder.finish())
    }
    match kind {
        Kind::Bool => fill(BooleanBuilder::new(), values, |out, item| out.append_option(item.as_bool())),
        Kind::Int => fill(Int64Builder::new(), values, |out, item| out.append_option(item.as_i64())),
        Kind::Float => fill(Float64Builder::new(), values, |out, item| out.append_option(item.as_f64())),
        Kind::Text => fill(StringBuilder::new(), values, |out, item| out.append_option(item.as_str())),
    }
}
