//! Seeded, deterministic k-means: in memory, and in two levels over points that need not be in memory.

mod kmeans;
mod partition;

pub(crate) use kmeans::{KMeans, add, mean_of, members};
pub(crate) use partition::{MemoryPoints, RowPoints, partition, sample_rows};

/// A clustering: `assign[i]` is the cluster of point i; `centroids` is row-major. No cluster is empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Clusters {
    pub centroids: Vec<f32>,
    pub assign: Vec<u32>,
}
