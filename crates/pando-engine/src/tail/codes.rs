//! Codes of tail rows: growable columns in the same layout as a leaf, coded against the root mean, so that the same
//! scan reads them. 1-bit codes only: a tail row that survives the scan is measured exactly, its vector is at hand.

use pando_kernels::{BLOCK_ROWS, CodeSpace, encode_bits};
use pando_tree::search::{Frame, LeafPart};

/// Coded rows that are to be appended together, computed off the lock.
#[derive(Debug, Default)]
pub struct CodedRows {
    codes: Vec<u8>,
    f_add: Vec<f32>,
    f_rescale: Vec<f32>,
    norm: Vec<f32>,
}

impl CodedRows {
    /// Codes the row-major original `vectors`. CPU work: about a microsecond a row.
    pub fn encode(frame: &Frame, vectors: &[f32]) -> Self {
        let (dim, padded) = (frame.dim(), frame.padded());
        let (kernels, mean) = (frame.kernels(), frame.mean());
        let n = vectors.len() / dim;
        let mut coded = Self {
            codes: vec![0; n * padded / 8],
            f_add: Vec::with_capacity(n),
            f_rescale: Vec::with_capacity(n),
            norm: Vec::with_capacity(n),
        };
        let zero = vec![0.0; padded];
        let mut prepared = vec![0.0; dim];
        let mut rotated = vec![0.0; padded];
        for (vector, code) in vectors.chunks_exact(dim).zip(coded.codes.chunks_exact_mut(padded / 8)) {
            frame.prepare(vector, &mut prepared);
            prepared.iter_mut().zip(mean).for_each(|(x, m)| *x -= m);
            let mean_dot_r = match frame.space() {
                CodeSpace::L2 => 0.0,
                CodeSpace::Ip => kernels.dot(mean, &prepared),
            };
            frame.rotation().apply(kernels, &prepared, &mut rotated);
            let factors = encode_bits(kernels, frame.space(), &rotated, &zero, mean_dot_r, code);
            coded.f_add.push(factors.f_add);
            coded.f_rescale.push(factors.f_rescale);
            coded.norm.push(factors.norm);
        }
        coded
    }

    /// Number of rows.
    #[cfg(test)]
    pub fn rows(&self) -> usize {
        self.norm.len()
    }
}

/// The tail's columns.
#[derive(Debug, Default)]
pub struct TailCodes {
    padded: usize,
    rows: Vec<u64>,
    packed: Vec<u8>,
    f_add: Vec<f32>,
    f_rescale: Vec<f32>,
    norm: Vec<f32>,
}

impl TailCodes {
    /// No rows; codes of `padded` dimensions.
    pub fn new(padded: usize) -> Self {
        Self { padded, ..Self::default() }
    }

    /// Appends coded rows with consecutive row numbers from `first_row`, above every row already here.
    pub fn append(&mut self, first_row: u64, coded: &CodedRows) {
        let code_bytes = self.padded / 8;
        for (place, code) in coded.codes.chunks_exact(code_bytes).enumerate() {
            let at = self.rows.len();
            let (block, slot) = (at / BLOCK_ROWS, at % BLOCK_ROWS);
            if slot == 0 {
                self.packed.resize((block + 1) * code_bytes * BLOCK_ROWS, 0);
            }
            let start = block * code_bytes * BLOCK_ROWS + slot;
            for (column, byte) in code.iter().enumerate() {
                self.packed[start + column * BLOCK_ROWS] = *byte;
            }
            self.rows.push(first_row + place as u64);
        }
        self.f_add.extend_from_slice(&coded.f_add);
        self.f_rescale.extend_from_slice(&coded.f_rescale);
        self.norm.extend_from_slice(&coded.norm);
    }

    /// The rows as one part of a leaf whose centroid is the root mean.
    pub fn part(&self) -> LeafPart<'_> {
        LeafPart {
            rows: &self.rows,
            packed: &self.packed,
            f_add: &self.f_add,
            f_rescale: &self.f_rescale,
            norm: &self.norm,
            refine: None,
            away: None,
        }
    }

    /// Row numbers, ascending.
    pub fn rows(&self) -> &[u64] {
        &self.rows
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.rows.len() * (8 + 12) + self.packed.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_kernels::{Kernels, Metric, pack_codes, packed_len};

    #[test]
    fn appending_piecewise_packs_like_packing_at_once() {
        let frame = Frame::new(Kernels::detect(), Metric::L2, 7, vec![0.25; 5]);
        let vectors: Vec<f32> = (0..5 * 100).map(|i| ((i * 37) % 101) as f32 - 50.0).collect();
        let mut codes = TailCodes::new(frame.padded());
        for (first, piece) in [(0, 0..1), (1, 1..33), (33, 33..64), (64, 64..100)] {
            let coded = CodedRows::encode(&frame, &vectors[piece.start * 5..piece.end * 5]);
            assert_eq!(coded.rows(), piece.len());
            codes.append(first, &coded);
        }
        let whole = CodedRows::encode(&frame, &vectors);
        let mut packed = vec![0; packed_len(100, frame.padded())];
        pack_codes(&whole.codes, frame.padded(), &mut packed);
        assert_eq!(codes.part().packed, packed);
        assert_eq!(codes.part().f_add, whole.f_add);
        assert_eq!(codes.rows(), (0..100).collect::<Vec<u64>>());
    }
}
