//! Seeded data for tests.
#![allow(dead_code)] // Each test binary uses its own part.

pub mod cases;

use pando_kernels::{Kernels, Simd};

/// splitmix64.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// In [-1, 1).
    pub fn uniform(&mut self) -> f32 {
        (self.next() >> 40) as f32 / 8_388_608.0 - 1.0
    }

    /// Nearly Gaussian, mean 0, deviation 1: sum of twelve uniforms, the same bits everywhere.
    pub fn gauss(&mut self) -> f32 {
        (0..12).map(|_| (self.next() >> 40) as f32 / 16_777_216.0).sum::<f32>() - 6.0
    }

    pub fn gauss_vec(&mut self, d: usize) -> Vec<f32> {
        (0..d).map(|_| self.gauss()).collect()
    }
}

/// Every kernel set that can run here, scalar first; says once which ones cannot.
pub fn kernel_sets() -> Vec<Kernels> {
    static SETS: std::sync::OnceLock<Vec<Kernels>> = std::sync::OnceLock::new();
    let find = || {
        let sets = [Simd::Scalar, Simd::Avx2, Simd::Avx512, Simd::Neon].map(Kernels::new);
        for e in sets.iter().filter_map(|set| set.as_ref().err()) {
            println!("skipped: {e}");
        }
        sets.into_iter().flatten().collect()
    };
    SETS.get_or_init(find).clone()
}
