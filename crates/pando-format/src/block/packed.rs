//! 1-bit codes in the packed layout: blocks of 32 rows, in each 32 bytes a code byte; and the shorter form in which
//! append slots store them.

use crate::aligned::AlignedBytes;

/// Rows of a block.
const ROWS: usize = 32;

/// Length of `n` rows of 1-bit codes in the packed layout of 32 rows.
pub fn packed_len(n: usize, padded: usize) -> usize {
    n.div_ceil(ROWS) * ROWS * (padded / 8)
}

/// Splits `n` rows of codes into the bytes of full blocks and the rows of the last block that is not full.
fn full_blocks(n: usize, padded: usize) -> (usize, usize) {
    (n / ROWS * ROWS * (padded / 8), n % ROWS)
}

/// Whether the rows that only fill up the last block are zero.
pub(crate) fn is_filled_with_zeros(packed: &[u8], n: usize, padded: usize) -> bool {
    let (full, rest) = full_blocks(n, padded);
    packed[full..].as_chunks::<ROWS>().0.iter().all(|column| column[rest..].iter().all(|byte| *byte == 0))
}

/// Packed codes of an append slot as they are stored: the last block without the rows that are not there.
pub(crate) fn cut(packed: &[u8], n: usize, padded: usize) -> Vec<u8> {
    let (full, rest) = full_blocks(n, padded);
    let mut out = packed[..full].to_vec();
    packed[full..].as_chunks::<ROWS>().0.iter().for_each(|column| out.extend_from_slice(&column[..rest]));
    out
}

/// Writes the packed layout of the `n` codes of an append slot into zeros, from their stored bytes (`n * padded / 8`).
pub(crate) fn fill_into(stored: &[u8], n: usize, padded: usize, out: &mut [u8]) {
    let (full, rest) = full_blocks(n, padded);
    out[..full].copy_from_slice(&stored[..full]);
    if rest > 0 {
        for (column, from) in out[full..].chunks_exact_mut(ROWS).zip(stored[full..].chunks_exact(rest)) {
            column[..rest].copy_from_slice(from);
        }
    }
}

/// The packed layout of `n` codes of an append slot, from their stored bytes (`n * padded / 8`).
pub fn fill_up(stored: &[u8], n: usize, padded: usize) -> AlignedBytes {
    let mut out = AlignedBytes::zeroed(packed_len(n, padded));
    fill_into(stored, n, padded, out.as_mut_slice());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_and_filled_up_codes_are_the_same() {
        for (n, padded) in
            [(0, 128), (1, 128), (2, 192), (31, 128), (32, 128), (33, 384), (64, 128), (100, 128)]
        {
            let mut packed: Vec<u8> = (0..packed_len(n, padded)).map(|i| (i * 7 % 251 + 1) as u8).collect();
            let (full, rest) = full_blocks(n, padded);
            if rest > 0 {
                assert!(!is_filled_with_zeros(&packed, n, padded));
                packed[full..].chunks_exact_mut(ROWS).for_each(|column| column[rest..].fill(0));
            }
            assert!(is_filled_with_zeros(&packed, n, padded));
            let stored = cut(&packed, n, padded);
            assert_eq!(stored.len(), n * padded / 8);
            assert_eq!(&fill_up(&stored, n, padded)[..], &packed[..]);
        }
    }
}
