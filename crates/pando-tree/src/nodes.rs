//! Groups and inner nodes: clusters of children that are split and merged with hysteresis. The first build starts
//! from one node that holds everything; later checkpoints start from the parent's nodes.

use crate::cluster::{KMeans, MemoryPoints, partition};
use crate::error::TreeError;
use crate::hashing::hash;

/// Sizes of nodes of one kind.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// Split over this.
    pub max: usize,
    /// Children per node that a split aims at.
    pub target: usize,
    /// Merged under this, if ...
    pub min: usize,
    /// ... the sum is at most this.
    pub merged: usize,
}

/// Leaves in a group.
pub(crate) const GROUP: Limits = Limits { max: crate::check::GROUP_MAX, target: 24, min: 8, merged: 24 };
/// Children of an inner node.
pub(crate) const INNER: Limits = Limits { max: crate::check::INNER_MAX, target: 48, min: 16, merged: 48 };

/// Children to be grouped: routing vectors (row-major) and bands, by place.
pub(crate) struct Children<'a> {
    pub vectors: &'a [f32],
    pub bands: &'a [u8],
}

/// A node while it is being regrouped.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    /// Id in the tree, none for a new node.
    pub id: Option<u64>,
    /// The node it was split from.
    pub origin: Option<u64>,
    /// Places of its children, ascending.
    pub members: Vec<u32>,
}

impl Node {
    pub fn new(id: Option<u64>, members: Vec<u32>) -> Self {
        Self { id, origin: id, members }
    }
}

/// One new node for each band, holding all its children: where a build starts.
pub(crate) fn one_per_band(bands: &[u8]) -> Vec<Node> {
    let mut nodes: Vec<Node> = Vec::new();
    for band in 0..=bands.iter().copied().max().unwrap_or(0) {
        let members: Vec<u32> = (0..bands.len() as u32).filter(|&i| bands[i as usize] == band).collect();
        if !members.is_empty() {
            nodes.push(Node::new(None, members));
        }
    }
    nodes
}

/// Brings the sizes of `nodes` (each of one band) into their limits. Nodes whose members stay together keep their
/// ids; order and result depend only on the arguments.
pub(crate) fn regroup(
    how: &KMeans,
    children: &Children<'_>,
    nodes: Vec<Node>,
    limits: Limits,
) -> Result<Vec<Node>, TreeError> {
    let mut out: Vec<Node> = Vec::with_capacity(nodes.len());
    for node in nodes.into_iter().filter(|n| !n.members.is_empty()) {
        if node.members.len() > limits.max {
            let mut parts = split(how, children, &node.members, limits)?;
            parts.iter_mut().for_each(|m| m.sort_unstable());
            parts.sort_unstable();
            out.extend(parts.into_iter().map(|members| Node { id: None, origin: node.origin, members }));
        } else {
            out.push(node);
        }
    }
    merge(how, children, out, limits)
}

fn gather(children: &Children<'_>, members: &[u32], d: usize) -> Vec<f32> {
    let mut out = Vec::with_capacity(members.len() * d);
    for &m in members {
        out.extend_from_slice(&children.vectors[m as usize * d..][..d]);
    }
    out
}

/// Splits members into parts of at most `limits.max`.
fn split(
    how: &KMeans,
    children: &Children<'_>,
    members: &[u32],
    limits: Limits,
) -> Result<Vec<Vec<u32>>, TreeError> {
    let d = how.dim;
    let k = members.len().div_ceil(limits.target);
    let points = gather(children, members, d);
    let how = KMeans { seed: hash(&[how.seed, 20, u64::from(members[0]), members.len() as u64]), ..*how };
    let clusters = partition(&MemoryPoints { points: &points, dim: d }, &how, k, true)?;
    let parts = clusters.centroids.len() / d;
    let mut assign = clusters.assign;
    if parts < 2 || members.len() <= 4 * limits.max {
        assign = balanced(&how, &points, &clusters.centroids, members.len(), k);
    }
    let parts = parts.max(k);
    let mut lists: Vec<Vec<u32>> = vec![Vec::new(); parts];
    for (&m, &a) in members.iter().zip(&assign) {
        lists[a as usize].push(m);
    }
    let mut out = Vec::new();
    for list in lists.into_iter().filter(|l| !l.is_empty()) {
        if list.len() > limits.max {
            out.extend(split(&how, children, &list, limits)?);
        } else {
            out.push(list);
        }
    }
    Ok(out)
}

/// Nearest centroid for each point, no part larger than a quarter over the mean: pairs in ascending order of
/// distance. What finds no room (there may be fewer centroids than parts) fills the parts in order.
fn balanced(how: &KMeans, points: &[f32], centroids: &[f32], n: usize, k: usize) -> Vec<u32> {
    let d = how.dim;
    let cap = (n * 5).div_ceil(k * 4);
    let mut pairs: Vec<(f32, u32, u32)> = Vec::with_capacity(n * k);
    for (i, x) in points.chunks_exact(d).enumerate() {
        for (j, c) in centroids.chunks_exact(d).enumerate() {
            pairs.push((how.kernels.l2(x, c), i as u32, j as u32));
        }
    }
    pairs.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then((a.1, a.2).cmp(&(b.1, b.2))));
    let mut assign = vec![u32::MAX; n];
    let mut sizes = vec![0usize; k.max(centroids.len() / d)];
    for (_, i, j) in pairs {
        if assign[i as usize] == u32::MAX && sizes[j as usize] < cap {
            assign[i as usize] = j;
            sizes[j as usize] += 1;
        }
    }
    let mut next = 0;
    for a in assign.iter_mut().filter(|a| **a == u32::MAX) {
        while sizes[next] >= cap {
            next += 1;
        }
        *a = next as u32;
        sizes[next] += 1;
    }
    assign
}

/// Mean of the members' vectors.
pub(crate) fn center(vectors: &[f32], members: &[u32], d: usize) -> Vec<f32> {
    let mut sum = vec![0f64; d];
    for &m in members {
        crate::cluster::add(&mut sum, &vectors[m as usize * d..][..d]);
    }
    let mut out = vec![0f32; d];
    crate::cluster::mean_of(&sum, members.len(), &mut out);
    out
}

fn merge(
    how: &KMeans,
    children: &Children<'_>,
    mut nodes: Vec<Node>,
    limits: Limits,
) -> Result<Vec<Node>, TreeError> {
    let d = how.dim;
    if nodes.iter().all(|n| n.members.len() >= limits.min) {
        return Ok(nodes);
    }
    let mut centers: Vec<Vec<f32>> = nodes.iter().map(|n| center(children.vectors, &n.members, d)).collect();
    let band = |n: &Node| children.bands[n.members[0] as usize];
    loop {
        let mut merged = false;
        for i in 0..nodes.len() {
            let size = nodes[i].members.len();
            if size == 0 || size >= limits.min {
                continue;
            }
            let mut best: Option<(f32, usize)> = None;
            for j in 0..nodes.len() {
                let other = nodes[j].members.len();
                if j == i || other == 0 || size + other > limits.merged || band(&nodes[j]) != band(&nodes[i])
                {
                    continue;
                }
                let dist = how.kernels.l2(&centers[i], &centers[j]);
                if best.is_none_or(|(b, _)| dist < b) {
                    best = Some((dist, j));
                }
            }
            let Some((_, j)) = best else { continue };
            let moved = std::mem::take(&mut nodes[i].members);
            nodes[j].members.extend(moved);
            nodes[j].members.sort_unstable();
            centers[j] = center(children.vectors, &nodes[j].members, d);
            merged = true;
        }
        if !merged {
            break;
        }
    }
    nodes.retain(|n| !n.members.is_empty());
    Ok(nodes)
}
