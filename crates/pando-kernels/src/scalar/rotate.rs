//! Pieces of the rotation: additions, subtractions and one multiplication by a constant, all lane by lane.

/// Flips the signs whose mask (0 or 0x8000_0000) is set.
pub(crate) fn flip(x: &mut [f32], masks: &[u32]) {
    for (v, m) in x.iter_mut().zip(masks) {
        *v = f32::from_bits(v.to_bits() ^ m);
    }
}

/// Hadamard transform in place, strides 1, 2, 4, ... in this order, then every element times `scale`.
/// The length is a power of two, at least 64.
pub(crate) fn fht(x: &mut [f32], scale: f32) {
    let mut h = 1;
    while h < x.len() {
        for pair in x.chunks_exact_mut(2 * h) {
            let (lo, hi) = pair.split_at_mut(h);
            for (a, b) in lo.iter_mut().zip(hi) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        h *= 2;
    }
    for v in x {
        *v *= scale;
    }
}

/// The Kac step: with halves a and b of x, (a, b) becomes ((a + b) * scale, (a - b) * scale).
pub(crate) fn kac(x: &mut [f32], scale: f32) {
    let (lo, hi) = x.split_at_mut(x.len() / 2);
    for (a, b) in lo.iter_mut().zip(hi) {
        (*a, *b) = ((*a + *b) * scale, (*a - *b) * scale);
    }
}
