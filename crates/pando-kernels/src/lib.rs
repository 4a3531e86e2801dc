//! Distances, rotation, 1-bit and multi-bit codes, and their SIMD kernels. No I/O, no async.
//!
//! Everything here is a pure function and gives the same bits on every instruction set: f32 sums run in 64
//! virtual lanes with fused multiply-add and one fold, f64 sums in 16 lanes, quantised scores are integers with
//! one fixed f32 epilogue. The scalar set is the definition; see [`codes`] and [`query`] for the formulas.
//!
//! ```
//! use pando_kernels::{CodeSpace, Kernels, Planes, Rotation, ScanQuery, encode_bits};
//! let k = Kernels::detect();
//! let rotation = Rotation::new(7, 100);
//! let (mut r, mut code) = (vec![0.0; rotation.padded()], vec![0; rotation.padded() / 8]);
//! rotation.apply(&k, &vec![0.5; 100], &mut r);
//! let c = vec![0.0; rotation.padded()];
//! let factors = encode_bits(&k, CodeSpace::L2, &r, &c, 0.0, &mut code);
//! assert!(factors.norm >= 5.0 && factors.norm < 5.001);
//! let query = ScanQuery::new(&r, Planes::P6);
//! assert_eq!(query.padded(), 128);
//! ```

pub mod codes;
mod error;
mod kernels;
mod metric;
mod packed;
mod prefetch;
pub mod query;
mod rotation;
mod scalar;
mod selfcheck;
mod simd;
mod table;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use codes::{BitFactors, RefineFactors, encode_bits, encode_nav, encode_refine};
pub use error::UnsupportedSimd;
pub use kernels::{ExactQuery, Kernels, denormals_on};
pub use metric::{CodeSpace, Metric, UnknownMetric};
pub use packed::{BLOCK_ROWS, pack_codes, packed_len, unpack_code};
pub use prefetch::prefetch;
pub use query::{BitColumns, NavQuery, Planes, ScanQuery, ScanTerms, Survivor};
pub use rotation::{Rotation, padded_dim};
pub use simd::Simd;
