//! The packed layout of 1-bit codes, one for all instruction sets.
//!
//! Rows are in blocks of 32. A block has one 32-byte column for each code byte (8 dimensions): byte j of column
//! b is code byte b of row j. The last block is filled up with zero rows.

/// Rows of one block.
pub const BLOCK_ROWS: usize = 32;

/// Bytes of `n_rows` packed codes of `padded` dimensions.
pub fn packed_len(n_rows: usize, padded: usize) -> usize {
    n_rows.div_ceil(BLOCK_ROWS) * padded / 8 * BLOCK_ROWS
}

/// Packs row-major codes (`padded / 8` bytes each) into `out` (`packed_len` bytes).
pub fn pack_codes(codes: &[u8], padded: usize, out: &mut [u8]) {
    let len = padded / 8;
    let n = codes.len() / len;
    assert!(padded.is_multiple_of(64) && codes.len() == n * len);
    assert_eq!(out.len(), packed_len(n, padded));
    for (block, rows) in out.chunks_exact_mut(len * BLOCK_ROWS).zip(codes.chunks(len * BLOCK_ROWS)) {
        if rows.len() < block.len() {
            block.fill(0);
        }
        for (j, code) in rows.chunks_exact(len).enumerate() {
            for (b, byte) in code.iter().enumerate() {
                block[b * BLOCK_ROWS + j] = *byte;
            }
        }
    }
}

/// Copies the code of one row (`padded / 8` bytes) out of packed codes.
pub fn unpack_code(packed: &[u8], padded: usize, row: usize, out: &mut [u8]) {
    let len = padded / 8;
    assert_eq!(out.len(), len);
    let start = row / BLOCK_ROWS * len * BLOCK_ROWS + row % BLOCK_ROWS;
    for (b, byte) in out.iter_mut().enumerate() {
        *byte = packed[start + b * BLOCK_ROWS];
    }
}
