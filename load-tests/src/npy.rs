//! Matrices in .npy files: f16, f32 or f64 vectors, i32 or i64 ids.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

/// A row-major matrix.
#[derive(Clone, Debug)]
pub struct Matrix<T> {
    /// Elements of a row.
    pub columns: usize,
    /// All rows, one after the other.
    pub values: Vec<T>,
}

impl<T> Matrix<T> {
    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.values.len() / self.columns
    }

    /// A row.
    pub fn row(&self, row: usize) -> &[T] {
        &self.values[row * self.columns..(row + 1) * self.columns]
    }

    /// Keeps the first rows.
    pub fn truncate(&mut self, rows: usize) {
        self.values.truncate(rows * self.columns);
    }
}

/// Vectors as f32; f16 and f64 are converted.
pub fn vectors(path: &Path) -> Result<Matrix<f32>> {
    let (kind, columns, body) = open(path)?;
    let values = match kind.as_str() {
        "<f2" => elements(&body, |b| half::f16::from_le_bytes(b).to_f32()),
        "<f4" => elements(&body, f32::from_le_bytes),
        "<f8" => elements(&body, |b| f64::from_le_bytes(b) as f32),
        other => bail!("{}: vectors of type {other}", path.display()),
    };
    Ok(Matrix { columns, values })
}

/// Row numbers, -1 where a row is short.
pub fn ids(path: &Path) -> Result<Matrix<i64>> {
    let (kind, columns, body) = open(path)?;
    let values = match kind.as_str() {
        "<i4" => elements(&body, |b| i32::from_le_bytes(b).into()),
        "<i8" => elements(&body, i64::from_le_bytes),
        other => bail!("{}: ids of type {other}", path.display()),
    };
    Ok(Matrix { columns, values })
}

fn elements<T, const N: usize>(body: &[u8], read: impl Fn([u8; N]) -> T) -> Vec<T> {
    body.as_chunks::<N>().0.iter().map(|bytes| read(*bytes)).collect()
}

/// Type, columns and bytes of a whole two-dimensional file in row-major order.
fn open(path: &Path) -> Result<(String, usize, Vec<u8>)> {
    let mut file = File::open(path).with_context(|| path.display().to_string())?;
    let mut all = Vec::new();
    file.read_to_end(&mut all)?;
    parse(all).with_context(|| format!("{} is not a matrix in .npy form", path.display()))
}

fn parse(mut all: Vec<u8>) -> Result<(String, usize, Vec<u8>)> {
    ensure!(all.len() >= 12 && all.starts_with(b"\x93NUMPY"), "no magic number");
    let (start, length) = match all[6] {
        1 => (10, usize::from(u16::from_le_bytes([all[8], all[9]]))),
        _ => (12, u32::from_le_bytes([all[8], all[9], all[10], all[11]]) as usize),
    };
    let header = all.get(start..start + length).context("the header is cut")?;
    let header = std::str::from_utf8(header)?.to_owned();
    let field =
        |name: &str| header.split_once(name).map(|(_, rest)| rest.trim_start()).context("a field is missing");
    let kind = field("'descr':")?.trim_start_matches('\'').chars().take(3).collect::<String>();
    ensure!(field("'fortran_order':")?.starts_with("False"), "it is in column-major order");
    let shape = field("'shape':")?.trim_start_matches('(').split(')').next().unwrap_or_default();
    let shape: Vec<usize> = shape
        .split(',')
        .map(str::trim)
        .filter(|n| !n.is_empty())
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    let [rows, columns] = shape[..] else { bail!("it has {} dimensions", shape.len()) };
    let size = kind.get(2..).and_then(|n| n.parse::<usize>().ok()).context("an unknown type")?;
    all.drain(..start + length);
    let wanted = rows.checked_mul(columns).and_then(|n| n.checked_mul(size));
    ensure!(columns > 0 && wanted == Some(all.len()), "its length does not fit its shape");
    Ok((kind, columns, all))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(kind: &str, shape: &str, body: &[u8]) -> Vec<u8> {
        let header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n");
        let mut out = b"\x93NUMPY\x01\0".to_vec();
        out.extend((header.len() as u16).to_le_bytes());
        out.extend(header.as_bytes());
        out.extend(body);
        out
    }

    #[test]
    fn vectors_and_ids_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.npy");
        std::fs::write(&path, file("<f4", "(2, 2)", bytemuck::cast_slice(&[1f32, 2.0, 3.0, 4.0]))).unwrap();
        let read = vectors(&path).unwrap();
        assert_eq!((read.rows(), read.row(1)), (2, &[3.0, 4.0][..]));
        std::fs::write(&path, file("<f2", "(1, 2)", &[0, 0x3c, 0, 0xc0])).unwrap();
        assert_eq!(vectors(&path).unwrap().values, [1.0, -2.0]);
        std::fs::write(&path, file("<i4", "(1, 2)", bytemuck::cast_slice(&[7i32, -1]))).unwrap();
        assert_eq!(ids(&path).unwrap().values, [7, -1]);
        assert!(vectors(&path).is_err(), "ids are not vectors");
    }

    #[test]
    fn a_file_that_is_cut_or_of_another_shape_is_refused() {
        let whole = file("<f4", "(2, 2)", &[0; 16]);
        assert!(parse(whole.clone()).is_ok());
        for cut in 0..whole.len() {
            assert!(parse(whole[..cut].to_vec()).is_err(), "cut at {cut}");
        }
        assert!(parse(file("<f4", "(4,)", &[0; 16])).is_err());
    }
}
