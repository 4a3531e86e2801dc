//! The reference kernels: plain Rust, the meaning of every result. The SIMD files must give the same bits.

mod code;
mod double;
mod float;
mod query;
mod rotate;
mod scan;

pub(crate) use code::{bits, nibble_dot, ray, ray_encode};
pub(crate) use double::{dot_f64, dot_norm2_f64, l2_f64};
pub(crate) use float::{dot, dot_matrix, dot_norm2, dot_rows, l2, l2_rows};
#[cfg(target_arch = "x86_64")]
pub(crate) use query::ROUND;
pub(crate) use query::{byte_sums, byte_tables, max_abs, quantise};
pub(crate) use rotate::{fht, flip, kac};
pub(crate) use scan::{estimates, nav, scan};

use crate::table::Table;

/// The scalar kernel table; runs everywhere.
pub(crate) const TABLE: Table = Table {
    l2,
    dot,
    dot_norm2,
    l2_rows,
    dot_rows,
    dot_matrix,
    l2_f64,
    dot_f64,
    dot_norm2_f64,
    flip,
    fht,
    kac,
    bits,
    ray,
    ray_encode,
    nibble_dot,
    max_abs,
    quantise,
    byte_sums,
    byte_tables,
    scan,
    estimates,
    nav,
};
