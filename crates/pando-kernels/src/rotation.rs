//! The seeded random rotation P.
//!
//! The vector is padded with zeros to [`padded_dim`] = max(128, next multiple of 64) = D. Four rounds of: random
//! sign flips of all D values; Hadamard transform of the largest power of two B = 2^k <= D, on the first B
//! values in rounds 0 and 2, on the last B in rounds 1 and 3; and, if B < D, the Kac step (a + b, a - b) on the
//! two halves. Scaling makes P orthogonal: with B = D one exact factor 2^-2k at the end; otherwise the f32
//! nearest 2^(-k/2) after each transform, and 1/4 in the last Kac step.
//!
//! Signs: bit i (LSB first) of the BLAKE3 output of (context "pando.rotation.v1", seed, round) in
//! little-endian; 1 flips. Only additions, subtractions and multiplications by constants in one fixed order:
//! the same bits on every machine.

use crate::kernels::Kernels;

const ROUNDS: usize = 4;

/// The dimension of codes and rotated vectors: at least 128 and a multiple of 64.
pub fn padded_dim(dim: usize) -> usize {
    dim.next_multiple_of(64).max(128)
}

/// The rotation of one collection.
#[derive(Clone, Debug)]
pub struct Rotation {
    dim: usize,
    padded: usize,
    /// Length of the Hadamard block, a power of two.
    block: usize,
    /// Sign masks (0 or 0x8000_0000), one round after the other.
    masks: Vec<u32>,
}

impl Rotation {
    /// The rotation for vectors of `dim` values; a pure function of both arguments.
    pub fn new(seed: u64, dim: usize) -> Self {
        assert!(dim > 0);
        let padded = padded_dim(dim);
        let mut masks = Vec::with_capacity(ROUNDS * padded);
        let mut bytes = vec![0u8; padded / 8];
        for round in 0..ROUNDS as u32 {
            let mut hasher = blake3::Hasher::new_derive_key("pando.rotation.v1");
            hasher.update(&seed.to_le_bytes());
            hasher.update(&round.to_le_bytes());
            hasher.finalize_xof().fill(&mut bytes);
            masks.extend((0..padded).map(|i| u32::from(bytes[i / 8] >> (i % 8) & 1) << 31));
        }
        Rotation { dim, padded, block: 1 << padded.ilog2(), masks }
    }

    /// Length of input vectors.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Length of rotated vectors.
    pub fn padded(&self) -> usize {
        self.padded
    }

    /// Rotates `x` (`dim` values) into `out` (`padded` values).
    pub fn apply(&self, k: &Kernels, x: &[f32], out: &mut [f32]) {
        assert!(x.len() == self.dim && out.len() == self.padded);
        out[..self.dim].copy_from_slice(x);
        out[self.dim..].fill(0.0);
        let whole = self.block == self.padded;
        let bits = self.block.ilog2();
        let per_round = (1.0 / (self.block as f64).sqrt()) as f32;
        // 2^(-2 bits), exactly.
        let at_end = f32::from_bits((127 - 2 * bits) << 23);
        for (round, masks) in self.masks.chunks_exact(self.padded).enumerate() {
            let last = round == ROUNDS - 1;
            let start = if round % 2 == 0 { 0 } else { self.padded - self.block };
            let scale = match (whole, last) {
                (true, false) => 1.0,
                (true, true) => at_end,
                (false, _) => per_round,
            };
            // SAFETY: the CPU was checked with the table; lengths are multiples of 64, the block a power of 2.
            unsafe {
                (k.table.flip)(out, masks);
                (k.table.fht)(&mut out[start..start + self.block], scale);
                if !whole {
                    (k.table.kac)(out, if last { 0.25 } else { 1.0 });
                }
            }
        }
    }
}
