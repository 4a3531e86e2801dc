//! Two-dimensional .npy files of f16, f32 or i32, read as f32 (ids up to 2^24 stay exact).

use std::error::Error;
use std::fs;
use std::path::Path;

/// A row-major matrix.
pub struct Array {
    pub rows: usize,
    pub columns: usize,
    pub values: Vec<f32>,
}

impl Array {
    pub fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.columns..(row + 1) * self.columns]
    }
}

pub fn read(path: &Path) -> Result<Array, Box<dyn Error>> {
    let bytes = fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    if bytes.len() < 12 || &bytes[..6] != b"\x93NUMPY" {
        return Err(format!("{} is not a .npy file", path.display()).into());
    }
    let long = bytes[6] > 1;
    let start = if long { 12 } else { 10 };
    let length = if long {
        u32::from_le_bytes(bytes[8..12].try_into()?) as usize
    } else {
        usize::from(u16::from_le_bytes(bytes[8..10].try_into()?))
    };
    let header = std::str::from_utf8(&bytes[start..start + length])?;
    let field = |name: &str| header.split(name).nth(1).ok_or(format!("no {name} in the header"));
    let shape = field("'shape': (")?.split(')').next().unwrap_or_default();
    let shape: Vec<usize> = shape.split(',').filter_map(|n| n.trim().parse().ok()).collect();
    let [rows, columns] = shape[..] else { return Err("not a matrix".into()) };
    let body = &bytes[start + length..];
    let kind = field("'descr': '")?.get(..3).unwrap_or_default();
    let values: Vec<f32> = match kind {
        "<f2" => body.as_chunks().0.iter().map(|b| half(u16::from_le_bytes(*b))).collect(),
        "<f4" => body.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect(),
        "<i4" => body.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b) as f32).collect(),
        other => return Err(format!("values of type {other}").into()),
    };
    if header.contains("'fortran_order': True") || values.len() != rows * columns {
        return Err("not a whole row-major matrix".into());
    }
    Ok(Array { rows, columns, values })
}

fn half(bits: u16) -> f32 {
    let sign = u32::from(bits >> 15) << 31;
    let (exponent, fraction) = (u32::from(bits >> 10 & 31), u32::from(bits & 1023));
    match exponent {
        // Subnormal: fraction * 2^-24.
        0 => f32::from_bits(sign | (fraction as f32 * (1.0 / 16_777_216.0)).to_bits()),
        31 => f32::from_bits(sign | 0x7f80_0000 | fraction << 13),
        _ => f32::from_bits(sign | (exponent + 112) << 23 | fraction << 13),
    }
}
