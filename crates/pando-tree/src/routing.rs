//! Routers over the leaves of a tree, one for each norm band, and the parallel walk of rows over them.

use rayon::prelude::*;
use std::collections::BTreeMap;

use crate::cluster::KMeans;
use crate::error::TreeError;
use crate::hashing::hash;
use crate::reader::{Reader, block_rows};
use crate::route::{Candidate, Router};
use crate::space::Space;
use crate::types::{Stage, Tree};

/// The leaves of one band.
pub(crate) struct BandRouter {
    pub router: Router,
    /// Leaf id at each place of the router.
    pub ids: Vec<u64>,
    /// Leaves of the bands before: `base + place` numbers all leaves.
    pub base: u32,
}

/// Routers of all bands (none where a band has no leaf), frozen at one state of the tree.
pub(crate) struct Routing {
    bands: Vec<Option<BandRouter>>,
    /// Leaf ids by number (band after band, place after place).
    pub ids: Vec<u64>,
    /// (band, place) of every leaf.
    places: BTreeMap<u64, (u8, u32)>,
}

impl Routing {
    /// Freezes the leaves of `tree`. Only leaves and the groups' lists matter.
    pub fn new(tree: &Tree, space: &Space<'_>, seed: u64) -> Result<Self, TreeError> {
        let d = space.dim;
        let spherical = space.metric == pando_kernels::Metric::Dot;
        let (mut bands, mut all) = (Vec::new(), Vec::new());
        let mut places = BTreeMap::new();
        for band in 0..=tree.params.bands.len() as u8 {
            let mut ids: Vec<u64> = Vec::new();
            let mut vectors: Vec<f32> = Vec::new();
            let mut groups: Vec<Vec<u32>> = Vec::new();
            for group in tree.groups.values().filter(|g| !g.leaves.is_empty()) {
                if leaf(tree, group.leaves[0])?.band != band {
                    continue;
                }
                groups.push((ids.len() as u32..(ids.len() + group.leaves.len()) as u32).collect());
                for &id in &group.leaves {
                    let at = vectors.len();
                    vectors.resize(at + d, 0.0);
                    space.route(&leaf(tree, id)?.centroid, &mut vectors[at..]);
                    ids.push(id);
                }
            }
            if ids.is_empty() {
                bands.push(None);
                continue;
            }
            let seed = hash(&[seed, 30, u64::from(band)]);
            let how = KMeans { kernels: space.kernels, dim: d, spherical, iterations: 8, seed };
            let router = Router::new(&how, &vectors, &groups)?;
            let ids: Vec<u64> = (0..ids.len() as u32).map(|place| ids[router.item(place) as usize]).collect();
            places.extend(ids.iter().enumerate().map(|(place, &id)| (id, (band, place as u32))));
            let base = all.len() as u32;
            all.extend_from_slice(&ids);
            bands.push(Some(BandRouter { router, ids, base }));
        }
        Ok(Self { bands, places, ids: all })
    }

    /// The router of a band, if the band has leaves.
    pub fn band(&self, band: u8) -> Option<&BandRouter> {
        self.bands.get(usize::from(band)).and_then(Option::as_ref)
    }

    /// Band and place of a leaf.
    pub fn place(&self, leaf: u64) -> Option<(u8, u32)> {
        self.places.get(&leaf).copied()
    }

    /// Routing vector of a leaf.
    pub fn vector(&self, leaf: u64) -> Option<&[f32]> {
        let (band, place) = self.place(leaf)?;
        self.band(band).map(|b| b.router.vector(place))
    }
}

fn leaf(tree: &Tree, id: u64) -> Result<&crate::types::Leaf, TreeError> {
    tree.leaves
        .get(&id)
        .ok_or_else(|| TreeError::Broken(format!("a group names leaf {id} that does not exist")))
}

/// Norm band of a prepared vector.
pub(crate) fn band_of(space: &Space<'_>, thresholds: &[f32], x: &[f32]) -> u8 {
    if thresholds.is_empty() {
        return 0;
    }
    let norm = space.kernels.norm2(x).sqrt();
    thresholds.iter().filter(|&&t| norm > t).count() as u8
}

/// One routed row.
pub(crate) struct Routed<'a> {
    /// Place in the list of rows.
    pub at: usize,
    /// Its band.
    pub band: u8,
    /// Its routing vector.
    pub vector: &'a [f32],
    /// The leaves of its band; none when the band has no leaf yet.
    pub leaves: Option<&'a BandRouter>,
    /// The nearest ones, ascending by (distance, place).
    pub nearest: &'a [Candidate],
}

/// Routes `rows` (ascending) to their `keep` nearest leaves and maps each; the results are in the order of the rows.
pub(crate) fn route_rows<T: Send>(
    reader: &Reader<'_>,
    space: &Space<'_>,
    routing: &Routing,
    thresholds: &[f32],
    rows: &[u64],
    keep: usize,
    stage: Stage,
    map: impl Fn(&Routed<'_>) -> T + Sync,
) -> Result<Vec<T>, TreeError> {
    let d = space.dim;
    let block = block_rows(d);
    let mut out: Vec<T> = Vec::with_capacity(rows.len());
    reader.batches(rows, |first, prepared| {
        let parts: Vec<Vec<T>> = prepared
            .par_chunks(block * d)
            .enumerate()
            .map(|(i, prepared)| {
                reader.env.check_cancel()?;
                Ok(route_block(space, routing, thresholds, first + i * block, prepared, keep, &map))
            })
            .collect::<Result<_, TreeError>>()?;
        out.extend(parts.into_iter().flatten());
        reader.env.report(stage, out.len() as u64, rows.len() as u64);
        Ok(())
    })?;
    Ok(out)
}

fn route_block<T>(
    space: &Space<'_>,
    routing: &Routing,
    thresholds: &[f32],
    first: usize,
    prepared: &[f32],
    keep: usize,
    map: &(impl Fn(&Routed<'_>) -> T + Sync),
) -> Vec<T> {
    let d = space.dim;
    let n = prepared.len() / d;
    let bands: Vec<u8> = prepared.chunks_exact(d).map(|x| band_of(space, thresholds, x)).collect();
    let mut points = vec![0f32; prepared.len()];
    space.route(prepared, &mut points);
    let mut out: Vec<Option<T>> = (0..n).map(|_| None).collect();
    for band in 0..=thresholds.len() as u8 {
        let members: Vec<usize> = (0..n).filter(|&i| bands[i] == band).collect();
        if members.is_empty() {
            continue;
        }
        let leaves = routing.band(band);
        let gathered: Vec<f32>;
        let vectors: &[f32] = if members.len() == n {
            &points
        } else {
            gathered = members.iter().flat_map(|&i| &points[i * d..(i + 1) * d]).copied().collect();
            &gathered
        };
        let nearest = leaves.map(|l| l.router.nearest(vectors, keep));
        for (j, &i) in members.iter().enumerate() {
            out[i] = Some(map(&Routed {
                at: first + i,
                band,
                vector: &vectors[j * d..(j + 1) * d],
                leaves,
                nearest: nearest.as_ref().map_or(&[], |n| &n[j]),
            }));
        }
    }
    out.into_iter().flatten().collect()
}
