//! NumPy's .npy: a header that is a Python dictionary, then the elements of one array.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use arrow_array::{ArrayRef, Float16Array, Float32Array};
use half::f16;

use super::{ReadOptions, Source, positions};

/// Type of an array's elements. All little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Element {
    F16,
    F32,
    F64,
    I32,
    I64,
    U32,
    U64,
}

impl Element {
    fn parse(descr: &str) -> Result<Self> {
        Ok(match descr {
            "<f2" => Self::F16,
            "<f4" => Self::F32,
            "<f8" => Self::F64,
            "<i4" => Self::I32,
            "<i8" => Self::I64,
            "<u4" => Self::U32,
            "<u8" => Self::U64,
            big if big.starts_with('>') => bail!(
                "its elements are {big:?}, which is big-endian; save it as little-endian: np.save(f, a.astype('<f4'))"
            ),
            other => bail!(
                "its elements are {other:?}; save it as float32 or float16: np.save(f, a.astype('<f4'))"
            ),
        })
    }

    /// Bytes of one element.
    pub fn bytes(self) -> usize {
        match self {
            Self::F16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F64 | Self::I64 | Self::U64 => 8,
        }
    }
}

/// A two-dimensional array on disk, read row by row.
pub struct Array2 {
    /// Type of the elements.
    pub element: Element,
    /// Rows.
    pub rows: u64,
    /// Elements of a row.
    pub columns: usize,
    reader: BufReader<File>,
}

impl Array2 {
    /// Reads the header and checks that the file is as long as it says.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        let mut reader = BufReader::with_capacity(1 << 20, file);
        let (header, data) = header(&mut reader)?;
        let Header { element, fortran, shape } = header;
        ensure!(
            !fortran || shape.iter().filter(|n| **n > 1).count() < 2,
            "its rows are not contiguous (fortran_order); save it as np.save(f, np.ascontiguousarray(a))"
        );
        let [rows, columns] = shape[..] else {
            bail!("its shape is {shape:?}; it must have two dimensions, rows and elements: a.reshape(-1, d)");
        };
        let columns = usize::try_from(columns)?;
        ensure!(columns > 0, "its rows have no elements (shape {shape:?})");
        let too_large = "its shape is larger than any file";
        let row_bytes = (columns as u64).checked_mul(element.bytes() as u64).context(too_large)?;
        let promised = rows.checked_mul(row_bytes).context(too_large)?;
        let there = length.saturating_sub(data);
        ensure!(
            there >= promised,
            "it is cut short: the header promises {rows} rows of {columns} elements, but the data ends in row {}; \
             copy or write the file again",
            there / row_bytes
        );
        ensure!(
            there == promised,
            "it has {} bytes more than the {rows} rows of {columns} elements that its header promises; \
             write it again with np.save",
            there - promised
        );
        Ok(Self { element, rows, columns, reader })
    }

    /// The next `rows` rows of an f16 array.
    fn f16(&mut self, rows: usize) -> Result<Vec<f16>> {
        let mut elements = vec![f16::ZERO; rows * self.columns];
        self.reader.read_exact(bytemuck::cast_slice_mut(&mut elements))?;
        Ok(elements)
    }

    fn f32(&mut self, rows: usize) -> Result<Vec<f32>> {
        let mut elements = vec![0f32; rows * self.columns];
        self.reader.read_exact(bytemuck::cast_slice_mut(&mut elements))?;
        Ok(elements)
    }

    /// f64 as f32, refused where it overflows. `first` is the position of the first row.
    fn f64(&mut self, first: u64, rows: usize) -> Result<Vec<f32>> {
        let mut elements = vec![0f64; rows * self.columns];
        self.reader.read_exact(bytemuck::cast_slice_mut(&mut elements))?;
        let narrow = |(i, x): (usize, &f64)| {
            let narrow = *x as f32;
            ensure!(
                narrow.is_finite() || !x.is_finite(),
                "row {}: element {} is {x:e}, which does not fit in float32",
                first + (i / self.columns) as u64,
                i % self.columns
            );
            Ok(narrow)
        };
        elements.iter().enumerate().map(narrow).collect()
    }

    /// All rows of an integer array, as i64.
    pub fn integers(mut self) -> Result<Vec<Vec<i64>>> {
        let element = self.element;
        let mut bytes = vec![0; self.columns * element.bytes()];
        let mut all = Vec::new();
        for _ in 0..self.rows {
            self.reader.read_exact(&mut bytes)?;
            let row = bytes.chunks_exact(element.bytes()).map(|bytes| match (element, bytes) {
                (Element::I32, &[a, b, c, d]) => Ok(i32::from_le_bytes([a, b, c, d]).into()),
                (Element::U32, &[a, b, c, d]) => Ok(u32::from_le_bytes([a, b, c, d]).into()),
                (Element::I64 | Element::U64, bytes) => Ok(i64::from_le_bytes(bytes.try_into()?)),
                _ => bail!("its elements are {element:?}; ids must be whole numbers"),
            });
            all.push(row.collect::<Result<_>>()?);
        }
        Ok(all)
    }
}

pub fn open(path: &Path, options: &ReadOptions) -> Result<Source> {
    let mut array = Array2::open(path)?;
    let element = array.element;
    ensure!(
        matches!(element, Element::F16 | Element::F32 | Element::F64),
        "its elements are whole numbers ({element:?}); vectors must be float32, float16 or float64"
    );
    let (rows, columns) = (array.rows, array.columns);
    let step = (options.batch_bytes / (columns * element.bytes())).max(1) as u64;
    let mut first = 0;
    let batches = std::iter::from_fn(move || {
        let count = step.min(rows - first);
        if count == 0 {
            return None;
        }
        let start = first;
        first += count;
        let mut read = || {
            let count = count as usize;
            let elements: ArrayRef = match element {
                Element::F16 => Arc::new(Float16Array::from(array.f16(count)?)),
                Element::F32 => Arc::new(Float32Array::from(array.f32(count)?)),
                _ => Arc::new(Float32Array::from(array.f64(start, count)?)),
            };
            positions(start, columns, elements)
        };
        Some(read())
    });
    Ok(Source { rows: Some(rows), batches: Box::new(batches) })
}

#[derive(Debug, PartialEq, Eq)]
struct Header {
    element: Element,
    fortran: bool,
    shape: Vec<u64>,
}

/// Longest header that is believed.
const MAX_HEADER: usize = 1 << 20;

/// The header and the offset of the data.
fn header(reader: &mut impl Read) -> Result<(Header, u64)> {
    let mut start = [0; 8];
    let whole = reader.read_exact(&mut start);
    ensure!(
        whole.is_ok() && start.starts_with(b"\x93NUMPY"),
        "it is not a .npy file (its first bytes are not \\x93NUMPY); write it with np.save"
    );
    let wide = match start[6] {
        1 => false,
        2 | 3 => true,
        version => bail!("it has .npy version {version}; write it with np.save of NumPy 1 or 2"),
    };
    let mut bytes = [0; 4];
    reader.read_exact(&mut bytes[..if wide { 4 } else { 2 }]).context("its header is cut short")?;
    let length = u32::from_le_bytes(bytes) as usize;
    ensure!(length <= MAX_HEADER, "its header claims to have {length} bytes; the file is damaged");
    let mut text = vec![0; length];
    reader.read_exact(&mut text).context("its header is cut short")?;
    let text = String::from_utf8(text).context("its header is not text")?;
    let parsed = parse(&text).with_context(|| format!("its header cannot be read: {}", text.trim()))?;
    Ok((parsed, 8 + if wide { 4 } else { 2 } + length as u64))
}

/// Reads `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`.
fn parse(text: &str) -> Result<Header> {
    let value = |key: &str| {
        let at = text.find(&format!("'{key}'")).with_context(|| format!("{key} is missing"))?;
        let rest = &text[at + key.len() + 2..];
        Ok::<_, anyhow::Error>(
            rest.trim_start().strip_prefix(':').context("a colon is missing")?.trim_start(),
        )
    };
    let descr = value("descr")?;
    let descr = descr.strip_prefix('\'').and_then(|rest| rest.split_once('\'')).map(|(descr, _)| descr);
    let element = Element::parse(descr.context("its elements are records; save one plain array")?)?;
    let fortran = match value("fortran_order")? {
        text if text.starts_with("True") => true,
        text if text.starts_with("False") => false,
        _ => bail!("fortran_order is neither True nor False"),
    };
    let shape = value("shape")?;
    let shape = shape.strip_prefix('(').and_then(|rest| rest.split_once(')')).context("shape is no tuple")?.0;
    let shape = shape.split(',').map(str::trim).filter(|number| !number.is_empty());
    let shape = shape.map(|number| number.parse().with_context(|| format!("shape holds {number:?}")));
    Ok(Header { element, fortran, shape: shape.collect::<Result<_>>()? })
}
