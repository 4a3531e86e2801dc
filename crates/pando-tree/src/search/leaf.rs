//! A leaf as the scan reads it, and which of its rows count.

/// Rows of a leaf that lie in one slot of one block: columns of equal length.
#[derive(Clone, Copy, Debug)]
pub struct LeafPart<'a> {
    /// Row numbers.
    pub rows: &'a [u64],
    /// 1-bit codes in the packed layout of 32 rows.
    pub packed: &'a [u8],
    /// Factor `f_add` of the 1-bit codes.
    pub f_add: &'a [f32],
    /// Factor `f_rescale` of the 1-bit codes.
    pub f_rescale: &'a [f32],
    /// Norm of the row's residual, rounded up.
    pub norm: &'a [f32],
    /// The refine codes of the same rows, if the collection has them.
    pub refine: Option<RefinePart<'a>>,
    /// The refine codes of the same rows are not in memory: [`LeafSource::refine_row`] has those that were loaded, by this
    /// name.
    pub away: Option<u64>,
}

/// Refine codes of a [`LeafPart`]: 4 more bits a dimension.
#[derive(Clone, Copy, Debug)]
pub struct RefinePart<'a> {
    /// Row-major, `padded / 2` bytes a row.
    pub nibbles: &'a [u8],
    /// Factor `f_add` of the 5-bit codes.
    pub f_add: &'a [f32],
    /// Factor `f_rescale` of the 5-bit codes.
    pub f_rescale: &'a [f32],
    /// Error factor of the 5-bit codes, to be multiplied by `|q - c|` and eps0.
    pub f_error: &'a [f32],
}

/// The refine code of one row, see [`RefinePart`].
#[derive(Clone, Copy, Debug)]
pub struct RefineRow<'a> {
    /// `padded / 2` bytes.
    pub nibbles: &'a [u8],
    /// Factor `f_add`.
    pub f_add: f32,
    /// Factor `f_rescale`.
    pub f_rescale: f32,
    /// Error factor.
    pub f_error: f32,
}

/// The leaves of a wave, loaded by the caller. All parts of a leaf are coded against the same centroid.
pub trait LeafSource {
    /// Full-precision centroid of a leaf, in prepared space.
    fn centroid(&self, leaf: u32) -> &[f32];
    /// Number of parts of a leaf (base slot and delta slots).
    fn parts(&self, leaf: u32) -> usize;
    /// One part of a leaf.
    fn part(&self, leaf: u32, part: usize) -> LeafPart<'_>;
    /// The refine code of row `index` of the part that is `away` under this name, if it was loaded.
    fn refine_row(&self, away: u64, index: u32) -> Option<RefineRow<'_>> {
        let _ = (away, index);
        None
    }
}

/// Rows that a query must not see: dead, hidden by the tail, filtered out. Asked about survivors of the scan only.
pub trait RowMask {
    /// Whether nothing at all is hidden (saves a call per row; `false` is always allowed).
    fn is_empty(&self) -> bool {
        false
    }
    /// Whether `row` is hidden.
    fn hidden(&self, row: u64) -> bool;
}

/// Hides nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoMask;

impl RowMask for NoMask {
    fn is_empty(&self) -> bool {
        true
    }
    fn hidden(&self, _row: u64) -> bool {
        false
    }
}

impl<F: Fn(u64) -> bool> RowMask for F {
    fn hidden(&self, row: u64) -> bool {
        self(row)
    }
}
