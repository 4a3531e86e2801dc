//! Full-precision centroids of a node's children, read by the compactor alone.
//!
//! Header counts: 0 children n, 1 dimension d. Section: f32[n × d], row-major.

use std::ops::Range;
use std::sync::Arc;

use crate::aligned::AlignedBytes;
use crate::block::{BlockReader, BlockWriter, cast};
use crate::error::{FormatError, ObjectKind};

/// Encodes a centroid block from row-major centroids of `dim` elements.
pub fn encode_centroids(dim: usize, centroids: &[f32]) -> Result<Vec<u8>, FormatError> {
    let invalid = |what: &str| FormatError::invalid(ObjectKind::Centroids, what);
    if dim == 0 || !centroids.len().is_multiple_of(dim) {
        return Err(invalid("it does not hold whole centroids"));
    }
    let n = u32::try_from(centroids.len() / dim).map_err(|_| invalid("it has too many children"))?;
    let mut w = BlockWriter::new(ObjectKind::Centroids, &[n, dim as u32]);
    w.f32s(centroids);
    Ok(w.finish())
}

/// A decoded centroid block.
#[derive(Clone, Debug)]
pub struct Centroids {
    bytes: Arc<AlignedBytes>,
    dim: usize,
    values: Range<usize>,
}

impl Centroids {
    /// Checks the block's layout. The bytes' hash is checked by whoever read them.
    pub fn decode(bytes: Arc<AlignedBytes>) -> Result<Self, FormatError> {
        let mut r = BlockReader::new(ObjectKind::Centroids, 2, &bytes)?;
        let (n, dim) = (r.count(0) as usize, r.count(1) as usize);
        if dim == 0 || dim > crate::MAX_DIMENSION as usize {
            return Err(r.damaged("its dimension is not valid"));
        }
        let values = r.section(n, 4 * dim)?;
        r.end()?;
        Ok(Self { dim, values, bytes })
    }

    /// Number of centroids.
    pub fn len(&self) -> usize {
        self.values.len() / (4 * self.dim)
    }

    /// True without centroids.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Elements of a centroid.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// All centroids, row-major.
    pub fn values(&self) -> &[f32] {
        cast(&self.bytes[self.values.clone()])
    }

    /// One centroid. Panics when `i` is out of range.
    pub fn get(&self, i: usize) -> &[f32] {
        &self.values()[i * self.dim..(i + 1) * self.dim]
    }
}
