//! Seeded data. The same arguments give the same rows on every machine.

/// SplitMix64: tiny, seedable, good enough for test data.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Any seed will do.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `0..n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next_u64() % n as u64) as usize
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// About normal with variance 1: the sum of twelve uniforms, which needs no function of the C library.
    pub fn normal(&mut self) -> f32 {
        ((0..12).map(|_| self.unit()).sum::<f64>() - 6.0) as f32
    }
}

/// Rows of one dimension, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct Vectors {
    /// Elements a row.
    pub dim: usize,
    /// `len() * dim` elements.
    pub flat: Vec<f32>,
}

impl Vectors {
    /// Rows.
    pub fn len(&self) -> usize {
        self.flat.len() / self.dim
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.flat.is_empty()
    }

    /// One row.
    pub fn row(&self, i: usize) -> &[f32] {
        &self.flat[i * self.dim..(i + 1) * self.dim]
    }

    /// Rows `range`, copied.
    pub fn slice(&self, range: std::ops::Range<usize>) -> Vectors {
        Vectors { dim: self.dim, flat: self.flat[range.start * self.dim..range.end * self.dim].to_vec() }
    }
}

/// A mixture that looks like embeddings: clusters of uneven size with low-dimensional insides that touch their
/// neighbours, a common mean, lengths that vary. No two rows are equal (with certainty in practice).
#[derive(Clone, Debug)]
pub struct Mixture {
    dim: usize,
    centers: Vec<Vec<f32>>,
    frames: Vec<Vec<f32>>,
    mean: Vec<f32>,
}

const INNER: usize = 12;

impl Mixture {
    /// A mixture of `clusters` clusters.
    pub fn new(seed: u64, dim: usize, clusters: usize) -> Mixture {
        let mut rng = Rng::new(seed);
        let mut normals = |n: usize, scale: f32| (0..n).map(|_| rng.normal() * scale).collect::<Vec<f32>>();
        let unit = 1.0 / (dim as f32).sqrt();
        Mixture {
            dim,
            centers: (0..clusters).map(|_| normals(dim, unit)).collect(),
            frames: (0..clusters).map(|_| normals(INNER * dim, unit / (INNER as f32).sqrt())).collect(),
            mean: normals(dim, 0.3 * unit),
        }
    }

    /// `n` rows of the stream `stream`; the same arguments give the same rows.
    pub fn rows(&self, stream: u64, n: usize) -> Vectors {
        let mut rng = Rng::new(stream.wrapping_mul(0xd6e8_feb8_6659_fd93) ^ 0x5eed);
        let mut flat = Vec::with_capacity(n * self.dim);
        for _ in 0..n {
            // Squaring makes the first clusters the larger ones.
            let u = rng.unit();
            let c = ((u * u) * self.centers.len() as f64) as usize;
            let other = rng.below(self.centers.len());
            let bridge = if rng.below(4) == 0 { 0.5 * rng.unit() as f32 } else { 0.0 };
            let inner: Vec<f32> = (0..INNER).map(|_| rng.normal() * 0.9).collect();
            let length = 0.6 + 0.8 * rng.unit() as f32;
            for i in 0..self.dim {
                let mut x =
                    (1.0 - bridge) * self.centers[c][i] + bridge * self.centers[other][i] + self.mean[i];
                for (j, z) in inner.iter().enumerate() {
                    x += z * self.frames[c][j * self.dim + i];
                }
                x += rng.normal() * 0.25 / (self.dim as f32).sqrt();
                flat.push(x * length);
            }
        }
        Vectors { dim: self.dim, flat }
    }
}
