//! Codes of a leaf's rows, as columns ready to be written into a block.

use pando_kernels::{self as kernels, CodeSpace, Kernels, Metric, Rotation};

use crate::error::TreeError;
use crate::types::{TreeConfig, TreeParams, VectorSource};

/// Rows read and encoded at a time.
const CHUNK: usize = 1024;

/// Refine columns of [`EncodedRows`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EncodedRefine {
    /// Row-major nibbles, `padded / 2` bytes a row.
    pub nibbles: Vec<u8>,
    /// Additive factor of each row.
    pub f_add: Vec<f32>,
    /// Multiplicative factor of each row.
    pub f_rescale: Vec<f32>,
    /// Error factor of each row.
    pub f_error: Vec<f32>,
}

/// Codes of `n` rows relative to one centroid, in the order of the rows given.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EncodedRows {
    /// Number of rows.
    pub n: usize,
    /// Additive factor of each row.
    pub f_add: Vec<f32>,
    /// Multiplicative factor of each row.
    pub f_rescale: Vec<f32>,
    /// Residual norm of each row, rounded up.
    pub norm: Vec<f32>,
    /// 1-bit codes in the packed layout of blocks of 32 rows.
    pub packed: Vec<u8>,
    /// Refine codes, when the collection has them.
    pub refine: Option<EncodedRefine>,
}

/// Encodes `rows` (any order; pass primaries then secondaries) relative to `centroid` (prepared space).
///
/// Reads the vectors in chunks of about a thousand rows; allocates the columns and one chunk.
pub fn encode_leaf(
    cfg: &TreeConfig,
    params: &TreeParams,
    rotation: &Rotation,
    kernels: &Kernels,
    centroid: &[f32],
    rows: &[u64],
    vectors: &dyn VectorSource,
) -> Result<EncodedRows, TreeError> {
    let (d, padded) = (cfg.dim, rotation.padded());
    if centroid.len() != d || params.mean.len() != d || rotation.dim() != d {
        return Err(TreeError::Invalid(
            "centroid, mean and rotation must have the collection's dimension".into(),
        ));
    }
    let n = rows.len();
    let space = if cfg.metric == Metric::Dot { CodeSpace::Ip } else { CodeSpace::L2 };
    let mut from_mean = vec![0f32; d];
    for i in 0..d {
        from_mean[i] = centroid[i] - params.mean[i];
    }
    let mut c_rot = vec![0f32; padded];
    rotation.apply(kernels, &from_mean, &mut c_rot);

    let code_len = padded / 8;
    let mut codes = vec![0u8; n * code_len];
    let mut out = EncodedRows {
        n,
        f_add: Vec::with_capacity(n),
        f_rescale: Vec::with_capacity(n),
        norm: Vec::with_capacity(n),
        packed: vec![0u8; kernels::packed_len(n, padded)],
        refine: cfg
            .refine
            .then(|| EncodedRefine { nibbles: vec![0u8; n * padded / 2], ..Default::default() }),
    };
    let mut chunk = vec![0f32; CHUNK.min(n) * d];
    let mut prepared = vec![0f32; d];
    let mut residual = vec![0f32; d];
    let mut r_rot = vec![0f32; padded];
    for (start, part) in rows.chunks(CHUNK).enumerate().map(|(i, part)| (i * CHUNK, part)) {
        let chunk = &mut chunk[..part.len() * d];
        vectors.read(part, chunk)?;
        for (j, x) in chunk.chunks_exact(d).enumerate() {
            let i = start + j;
            let x = if cfg.metric == Metric::Cosine {
                kernels.normalize(x, &mut prepared);
                &prepared[..]
            } else {
                x
            };
            for t in 0..d {
                residual[t] = x[t] - centroid[t];
            }
            rotation.apply(kernels, &residual, &mut r_rot);
            let mean_dot_r = if space == CodeSpace::Ip { kernels.dot(&params.mean, &residual) } else { 0.0 };
            let code = &mut codes[i * code_len..(i + 1) * code_len];
            let f = kernels::encode_bits(kernels, space, &r_rot, &c_rot, mean_dot_r, code);
            out.f_add.push(f.f_add);
            out.f_rescale.push(f.f_rescale);
            out.norm.push(f.norm);
            if let Some(refine) = &mut out.refine {
                let nibbles = &mut refine.nibbles[i * padded / 2..(i + 1) * padded / 2];
                let f = kernels::encode_refine(kernels, space, &r_rot, &c_rot, mean_dot_r, nibbles);
                refine.f_add.push(f.f_add);
                refine.f_rescale.push(f.f_rescale);
                refine.f_error.push(f.f_error);
            }
        }
    }
    kernels::pack_codes(&codes, padded, &mut out.packed);
    Ok(out)
}
