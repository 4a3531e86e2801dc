//! The index in memory: what the engine holds in blocks and segments.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use pando_kernels::Kernels;
use pando_tree::search::{
    CalibrationSource, Frame, LeafPart, LeafSource, Nav, NavBuilder, RefinePart, encode_nav_child, inner_r2,
};
use pando_tree::{
    EncodedRefine, EncodedRows, Env, Tree, TreeConfig, TreeError, VectorSource, build, encode_leaf,
};
use rayon::prelude::*;

use crate::arguments::Arguments;
use crate::npy;

/// Vectors by row number.
pub struct Vectors {
    dim: usize,
    values: Vec<f32>,
}

impl Vectors {
    #[inline]
    pub fn row(&self, row: u64) -> &[f32] {
        &self.values[row as usize * self.dim..(row as usize + 1) * self.dim]
    }
}

impl VectorSource for Vectors {
    fn read(&self, rows: &[u64], out: &mut [f32]) -> Result<(), TreeError> {
        for (row, out) in rows.iter().zip(out.chunks_exact_mut(self.dim)) {
            out.copy_from_slice(self.row(*row));
        }
        Ok(())
    }
}

/// A leaf with its codes.
pub struct EncodedLeaf {
    pub centroid: Vec<f32>,
    pub rows: Vec<u64>,
    codes: EncodedRows,
    r2: f32,
    primaries: u64,
}

pub struct Index {
    pub nav: Nav,
    pub dim: usize,
    pub vectors: Vectors,
    pub leaves: Vec<EncodedLeaf>,
}

/// What is kept of a tree: the mean, and leaves by group.
struct Shape {
    mean: Vec<f32>,
    groups: Vec<(Vec<f32>, Vec<EncodedLeaf>)>,
}

impl Index {
    pub fn len(&self) -> usize {
        self.vectors.values.len() / self.dim
    }

    pub fn open(
        arguments: &Arguments,
        kernels: Kernels,
        pool: &rayon::ThreadPool,
    ) -> Result<Index, Box<dyn Error>> {
        let base = npy::read(&arguments.base)?;
        let (rows, dim) = (base.rows.min(arguments.limit), base.columns);
        let mut values = base.values;
        values.truncate(rows * dim);
        let vectors = Vectors { dim, values };
        let config = TreeConfig {
            dim,
            metric: arguments.metric,
            seed: 0,
            copies: arguments.copies,
            refine: arguments.refine,
            small_limit: 10_000,
        };
        let cached = arguments.cache.as_deref().filter(|path| path.exists());
        let shape = match cached {
            Some(path) => load(path, dim, arguments.refine)?,
            None => encode(&config, kernels, pool, &vectors, rows)?,
        };
        if let (None, Some(path)) = (cached, &arguments.cache) {
            save(path, &shape)?;
        }
        let frame = Arc::new(Frame::new(kernels, arguments.metric, config.seed, shape.mean));
        let nav = navigation(frame, &shape.groups)?;
        let leaves = shape.groups.into_iter().flat_map(|g| g.1).collect();
        Ok(Index { nav, dim, vectors, leaves })
    }
}

fn encode(
    config: &TreeConfig,
    kernels: Kernels,
    pool: &rayon::ThreadPool,
    vectors: &Vectors,
    rows: usize,
) -> Result<Shape, Box<dyn Error>> {
    let start = Instant::now();
    let live: Vec<u64> = (0..rows as u64).collect();
    let env =
        Env { kernels, pool, vectors, memory: 1 << 30, progress: &|_| {}, cancel: &AtomicBool::new(false) };
    let tree: Tree = build(config, &live, &env)?;
    println!("built in {:.1} s", start.elapsed().as_secs_f64());
    let start = Instant::now();
    let frame = Frame::new(kernels, config.metric, config.seed, tree.params.mean.clone());
    let one = |id: &u64| -> Result<EncodedLeaf, TreeError> {
        let leaf = &tree.leaves[id];
        let rows: Vec<u64> = leaf.primaries.iter().chain(&leaf.secondaries).copied().collect();
        let centroid = leaf.centroid.clone();
        let rotation = frame.rotation();
        let codes = encode_leaf(config, &tree.params, rotation, &kernels, &centroid, &rows, vectors)?;
        Ok(EncodedLeaf { centroid, rows, codes, r2: leaf.r2, primaries: leaf.primaries.len() as u64 })
    };
    let mut groups = Vec::new();
    for group in tree.groups.values() {
        let leaves = pool.install(|| group.leaves.par_iter().map(one).collect::<Result<Vec<_>, _>>())?;
        groups.push((group.centroid.clone(), leaves));
    }
    println!("encoded in {:.1} s", start.elapsed().as_secs_f64());
    Ok(Shape { mean: tree.params.mean.clone(), groups })
}

/// Two levels, whatever the tree has: groups under the top node.
fn navigation(frame: Arc<Frame>, groups: &[(Vec<f32>, Vec<EncodedLeaf>)]) -> Result<Nav, TreeError> {
    let mut builder = NavBuilder::new(frame.clone());
    let tops = groups.iter().map(|(centroid, leaves)| {
        let children = leaves.iter().map(|l| (&l.centroid[..], l.r2, l.primaries));
        (&centroid[..], inner_r2(&frame, centroid, children))
    });
    push(&mut builder, &frame, 0, tops)?;
    for (_, leaves) in groups {
        push(&mut builder, &frame, 1, leaves.iter().map(|l| (&l.centroid[..], l.r2)))?;
    }
    builder.finish()
}

fn push<'a>(
    builder: &mut NavBuilder,
    frame: &Frame,
    level: usize,
    children: impl Iterator<Item = (&'a [f32], f32)>,
) -> Result<(), TreeError> {
    let (mut nibbles, mut scale, mut add, mut r2) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (centroid, radius) in children {
        let at = nibbles.len();
        nibbles.resize(at + frame.padded() / 2, 0);
        let constants = encode_nav_child(frame, centroid, radius, &mut nibbles[at..]);
        scale.push(constants.scale);
        add.push(constants.add);
        r2.push(constants.r2);
    }
    builder.push_node(level, &nibbles, &scale, &add, &r2)
}

impl LeafSource for Index {
    #[inline]
    fn centroid(&self, leaf: u32) -> &[f32] {
        &self.leaves[leaf as usize].centroid
    }

    #[inline]
    fn parts(&self, _: u32) -> usize {
        1
    }

    #[inline]
    fn part(&self, leaf: u32, _: usize) -> LeafPart<'_> {
        let EncodedLeaf { rows, codes, .. } = &self.leaves[leaf as usize];
        LeafPart {
            rows,
            packed: &codes.packed,
            f_add: &codes.f_add,
            f_rescale: &codes.f_rescale,
            norm: &codes.norm,
            refine: codes.refine.as_ref().map(|r| RefinePart {
                nibbles: &r.nibbles,
                f_add: &r.f_add,
                f_rescale: &r.f_rescale,
                f_error: &r.f_error,
            }),
            away: None,
        }
    }
}

impl CalibrationSource for Index {
    fn with_leaves(&self, _: &[u32], f: &mut dyn FnMut(&dyn LeafSource)) -> Result<(), TreeError> {
        f(self);
        Ok(())
    }
}

// ---- the cache: columns one after the other, each with its length ----

fn save(path: &Path, shape: &Shape) -> Result<(), Box<dyn Error>> {
    let mut out = Vec::new();
    put(&mut out, &shape.mean);
    put(&mut out, &[shape.groups.len() as u64]);
    for (centroid, leaves) in &shape.groups {
        put(&mut out, centroid);
        put(&mut out, &[leaves.len() as u64]);
        for leaf in leaves {
            put(&mut out, &leaf.centroid);
            put(&mut out, &leaf.rows);
            put(&mut out, &[leaf.r2]);
            put(&mut out, &[leaf.primaries]);
            let codes = &leaf.codes;
            for column in [&codes.f_add, &codes.f_rescale, &codes.norm] {
                put(&mut out, column);
            }
            put(&mut out, &codes.packed);
            let refine = codes.refine.clone().unwrap_or_default();
            put(&mut out, &refine.nibbles);
            for column in [&refine.f_add, &refine.f_rescale, &refine.f_error] {
                put(&mut out, column);
            }
        }
    }
    fs::write(path, out)?;
    Ok(())
}

fn put<T: bytemuck::NoUninit>(out: &mut Vec<u8>, values: &[T]) {
    out.extend((values.len() as u64).to_le_bytes());
    out.extend_from_slice(bytemuck::cast_slice(values));
}

fn load(path: &Path, dim: usize, with_refine: bool) -> Result<Shape, Box<dyn Error>> {
    let bytes = fs::read(path)?;
    let mut rest = &bytes[..];
    let mean: Vec<f32> = take(&mut rest)?;
    if mean.len() != dim {
        return Err("the cache is of another base".into());
    }
    let mut groups = Vec::new();
    for _ in 0..one(&mut rest)? {
        let centroid = take(&mut rest)?;
        let mut leaves = Vec::new();
        for _ in 0..one(&mut rest)? {
            let (centroid, rows): (_, Vec<u64>) = (take(&mut rest)?, take(&mut rest)?);
            let r2 = take(&mut rest)?[0];
            let primaries = one(&mut rest)?;
            let (f_add, f_rescale, norm) = (take(&mut rest)?, take(&mut rest)?, take(&mut rest)?);
            let packed = take(&mut rest)?;
            let refine = EncodedRefine {
                nibbles: take(&mut rest)?,
                f_add: take(&mut rest)?,
                f_rescale: take(&mut rest)?,
                f_error: take(&mut rest)?,
            };
            let refine = with_refine.then_some(refine);
            let codes = EncodedRows { n: rows.len(), f_add, f_rescale, norm, packed, refine };
            leaves.push(EncodedLeaf { centroid, rows, codes, r2, primaries });
        }
        groups.push((centroid, leaves));
    }
    Ok(Shape { mean, groups })
}

fn one(rest: &mut &[u8]) -> Result<u64, Box<dyn Error>> {
    take(rest)?.first().copied().ok_or("the cache is damaged".into())
}

fn take<T: bytemuck::AnyBitPattern>(rest: &mut &[u8]) -> Result<Vec<T>, Box<dyn Error>> {
    let (length, body) = rest.split_at_checked(8).ok_or("the cache is cut short")?;
    let bytes = u64::from_le_bytes(length.try_into()?) as usize * size_of::<T>();
    let (values, after) = body.split_at_checked(bytes).ok_or("the cache is cut short")?;
    *rest = after;
    Ok(values.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect())
}
