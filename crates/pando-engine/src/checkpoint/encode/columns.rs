//! Columns of one slot: rows and codes, owned; merging of slots that are coded against the same centroid.

use pando_format::{LeafSlot, RefineParts, RefineSlot, SlotKind, SlotParts};
use pando_kernels::{pack_codes, packed_len, unpack_code};
use pando_tree::{EncodedRefine, EncodedRows};

use crate::error::Result;
use crate::rootio::damaged;

/// Rows with their codes: primaries ascending, then secondaries ascending.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    pub n_primary: usize,
    pub rows: Vec<u64>,
    pub codes: EncodedRows,
}

/// A view of rows with their codes.
pub type Part<'a> = SlotParts<'a>;

/// Views a stored slot and the refine slot beside it.
pub fn stored<'a>(leaf: &LeafSlot<'a>, refine: Option<RefineSlot<'a>>) -> Part<'a> {
    SlotParts {
        leaf: leaf.leaf,
        kind: leaf.kind,
        centroid: leaf.centroid,
        n_primary: leaf.n_primary,
        rows: leaf.rows,
        f_add: leaf.f_add,
        f_rescale: leaf.f_rescale,
        norm: leaf.norm,
        packed: leaf.packed,
        refine: refine.map(|r| RefineParts {
            nibbles: r.nibbles,
            f_add: r.f_add,
            f_rescale: r.f_rescale,
            f_error: r.f_error,
        }),
    }
}

impl Columns {
    /// Views the columns as a slot of a leaf; `centroid` is empty for an append slot.
    pub fn as_slot<'a>(&'a self, leaf: u64, kind: SlotKind, centroid: &'a [f32]) -> Part<'a> {
        SlotParts {
            leaf,
            kind,
            centroid,
            n_primary: self.n_primary,
            rows: &self.rows,
            f_add: &self.codes.f_add,
            f_rescale: &self.codes.f_rescale,
            norm: &self.codes.norm,
            packed: &self.codes.packed,
            refine: self.codes.refine.as_ref().map(|r| RefineParts {
                nibbles: &r.nibbles,
                f_add: &r.f_add,
                f_rescale: &r.f_rescale,
                f_error: &r.f_error,
            }),
        }
    }
}

/// One list of rows and codes out of several that share a centroid. Every row must be in one part only.
pub fn merge(parts: &[Part<'_>], padded: usize, refine: bool) -> Result<Columns> {
    let mut primaries: Vec<(u64, u32, u32)> = Vec::new();
    let mut secondaries: Vec<(u64, u32, u32)> = Vec::new();
    for (p, part) in parts.iter().enumerate() {
        if part.refine.is_some() != refine {
            return Err(damaged("refine block: it is missing or not wanted"));
        }
        for (i, row) in part.rows.iter().enumerate() {
            let list = if i < part.n_primary { &mut primaries } else { &mut secondaries };
            list.push((*row, p as u32, i as u32));
        }
    }
    for list in [&mut primaries, &mut secondaries] {
        list.sort_unstable();
        if list.windows(2).any(|w| w[0].0 == w[1].0) {
            return Err(damaged("leaf block: a row is twice in a leaf"));
        }
    }
    let n_primary = primaries.len();
    let order: Vec<(u64, u32, u32)> = primaries.into_iter().chain(secondaries).collect();
    let n = order.len();
    let (code, nibbles) = (padded / 8, padded / 2);
    let mut codes = vec![0u8; n * code];
    let mut out = EncodedRows {
        n,
        f_add: Vec::with_capacity(n),
        f_rescale: Vec::with_capacity(n),
        norm: Vec::with_capacity(n),
        packed: vec![0u8; packed_len(n, padded)],
        refine: refine
            .then(|| EncodedRefine { nibbles: Vec::with_capacity(n * nibbles), ..Default::default() }),
    };
    for (at, &(_, p, i)) in order.iter().enumerate() {
        let (part, i) = (&parts[p as usize], i as usize);
        unpack_code(part.packed, padded, i, &mut codes[at * code..(at + 1) * code]);
        out.f_add.push(part.f_add[i]);
        out.f_rescale.push(part.f_rescale[i]);
        out.norm.push(part.norm[i]);
        if let (Some(to), Some(from)) = (&mut out.refine, &part.refine) {
            to.nibbles.extend_from_slice(&from.nibbles[i * nibbles..(i + 1) * nibbles]);
            to.f_add.push(from.f_add[i]);
            to.f_rescale.push(from.f_rescale[i]);
            to.f_error.push(from.f_error[i]);
        }
    }
    pack_codes(&codes, padded, &mut out.packed);
    Ok(Columns { n_primary, rows: order.into_iter().map(|(row, _, _)| row).collect(), codes: out })
}

/// Joins codes of consecutive runs of rows. Every run but the last has a multiple of 32 rows.
pub fn join(runs: Vec<EncodedRows>) -> EncodedRows {
    let mut runs = runs.into_iter();
    let Some(mut all) = runs.next() else { return EncodedRows::default() };
    for run in runs {
        all.n += run.n;
        all.f_add.extend(run.f_add);
        all.f_rescale.extend(run.f_rescale);
        all.norm.extend(run.norm);
        all.packed.extend(run.packed);
        if let (Some(to), Some(from)) = (&mut all.refine, run.refine) {
            to.nibbles.extend(from.nibbles);
            to.f_add.extend(from.f_add);
            to.f_rescale.extend(from.f_rescale);
            to.f_error.extend(from.f_error);
        }
    }
    all
}
