//! Order-independent fingerprints of row sets (law 4): wrapping sums of a 128-bit hash of row numbers.

const DOMAIN: &[u8] = b"pando.row.v1";

/// Fingerprint of one row: the first 16 bytes (little endian) of BLAKE3("pando.row.v1" || row as u64 LE).
pub fn fingerprint(row: u64) -> u128 {
    let mut input = [0u8; DOMAIN.len() + 8];
    input[..DOMAIN.len()].copy_from_slice(DOMAIN);
    input[DOMAIN.len()..].copy_from_slice(&row.to_le_bytes());
    let hash = blake3::hash(&input);
    let mut low = [0u8; 16];
    low.copy_from_slice(&hash.as_bytes()[..16]);
    u128::from_le_bytes(low)
}

/// Fingerprint of a set: the wrapping sum over its rows. The empty set has 0; sums of disjoint sets add up.
pub fn fingerprint_rows(rows: &[u64]) -> u128 {
    rows.iter().fold(0u128, |sum, &row| sum.wrapping_add(fingerprint(row)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_do_not_depend_on_order_and_add_up() {
        let a = fingerprint_rows(&[1, 2, 3]);
        assert_eq!(a, fingerprint_rows(&[3, 1, 2]));
        assert_eq!(a, fingerprint_rows(&[1]).wrapping_add(fingerprint_rows(&[2, 3])));
        assert_ne!(a, fingerprint_rows(&[1, 2, 2]));
        assert_eq!(fingerprint_rows(&[]), 0);
    }
}
