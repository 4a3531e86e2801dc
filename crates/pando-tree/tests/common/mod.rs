//! Seeded data, an environment, and a model that follows a tree from checkpoint to checkpoint.
#![allow(clippy::disallowed_methods)] // Test data may use any arithmetic.
#![allow(dead_code, reason = "every test file uses its own part")]

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;

use pando_kernels::{Kernels, Metric};
use pando_tree::{
    Change, Env, Report, Tree, TreeConfig, TreeError, VectorSource, advance, build, check, fingerprint_rows,
    should_rebuild,
};

/// splitmix64.
pub fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Uniform in [0, 1).
pub fn unit(seed: u64) -> f32 {
    (mix(seed) >> 40) as f32 / (1u64 << 24) as f32
}

/// About standard normal.
pub fn normal(seed: u64) -> f32 {
    (0..6).map(|i| unit(mix(seed) ^ mix(i))).sum::<f32>() * 1.414 - 4.243
}

/// A row of one of `clusters` clusters with the given spread.
pub fn clustered(row: u64, dim: usize, clusters: u64, spread: f32) -> Vec<f32> {
    let c = mix(row ^ 0xabcd) % clusters;
    (0..dim as u64).map(|i| normal(c * 1000 + i) + spread * normal(mix(row).wrapping_add(i))).collect()
}

type RowFn = Box<dyn Fn(u64) -> Vec<f32> + Sync>;

/// Vectors computed from row numbers.
pub struct Rows {
    pub dim: usize,
    pub vector: RowFn,
}

impl Rows {
    pub fn new(dim: usize, vector: impl Fn(u64) -> Vec<f32> + Sync + 'static) -> Self {
        Self { dim, vector: Box::new(vector) }
    }
}

impl VectorSource for Rows {
    fn read(&self, rows: &[u64], out: &mut [f32]) -> Result<(), TreeError> {
        for (&row, x) in rows.iter().zip(out.chunks_exact_mut(self.dim)) {
            x.copy_from_slice(&(self.vector)(row));
        }
        Ok(())
    }
}

pub fn config(dim: usize, metric: Metric) -> TreeConfig {
    TreeConfig { dim, metric, seed: 7, copies: 2, refine: true, small_limit: 500 }
}

/// Calls `f` with an environment of so many threads and bytes.
pub fn with_env<T>(
    vectors: &dyn VectorSource,
    threads: usize,
    memory: usize,
    f: impl FnOnce(&Env<'_>) -> T,
) -> T {
    let kernels = Kernels::from_env().unwrap();
    with_kernels(vectors, threads, memory, kernels, f)
}

/// The same with given kernels.
pub fn with_kernels<T>(
    vectors: &dyn VectorSource,
    threads: usize,
    memory: usize,
    kernels: Kernels,
    f: impl FnOnce(&Env<'_>) -> T,
) -> T {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    let cancel = AtomicBool::new(false);
    f(&Env { kernels, pool: &pool, vectors, memory, progress: &|_| {}, cancel: &cancel })
}

/// What must be so after every checkpoint, kept beside the tree in the plainest way.
pub struct Model {
    pub cfg: TreeConfig,
    pub rows: Rows,
    pub live: BTreeSet<u64>,
    pub dead: BTreeSet<u64>,
    pub tree: Option<Tree>,
    pub next_row: u64,
    pub threads: usize,
    pub memory: usize,
    pub builds: usize,
    pub reports: Vec<Report>,
}

impl Model {
    pub fn new(cfg: TreeConfig, rows: Rows) -> Self {
        Self {
            cfg,
            rows,
            live: BTreeSet::new(),
            dead: BTreeSet::new(),
            tree: None,
            next_row: 0,
            threads: 2,
            memory: 1 << 20,
            builds: 0,
            reports: Vec::new(),
        }
    }

    /// Adds `added` new rows, kills the rows of `killed`, advances or rebuilds, and checks everything.
    pub fn checkpoint(&mut self, added: u64, killed: &[u64]) {
        let before = self.live.len() as u64;
        let new: Vec<u64> = (self.next_row..self.next_row + added).collect();
        self.next_row += added;
        self.live.extend(&new);
        for row in killed {
            if self.live.remove(row) {
                self.dead.insert(*row);
            }
        }
        let parent = self.tree.take();
        let rebuild =
            parent.as_ref().is_none_or(|t| should_rebuild(&self.cfg, t, before, self.live.len() as u64));
        let (tree, report) = with_env(&self.rows, self.threads, self.memory, |env| match &parent {
            Some(tree) if !rebuild => {
                let (tree, report) = advance(&self.cfg, tree.clone(), &new, &self.dead, env).unwrap();
                (tree, Some(report))
            }
            _ => {
                let live: Vec<u64> = self.live.iter().copied().collect();
                (build(&self.cfg, &live, env).unwrap(), None)
            }
        });
        self.verify(&tree, report.as_ref());
        match (&parent, report) {
            (Some(parent), Some(report)) => {
                self.verify_changes(parent, &tree);
                self.reports.push(report);
            }
            _ => {
                self.builds += 1;
                assert!(tree.leaves.values().all(|l| l.change == Change::Rewritten));
                assert!(tree.groups.values().all(|g| g.changed && g.recoded));
            }
        }
        self.tree = Some(tree);
    }

    fn verify(&self, tree: &Tree, report: Option<&Report>) {
        let totals = check(&self.cfg, tree, &self.dead).unwrap();
        let live: Vec<u64> = self.live.iter().copied().collect();
        assert_eq!(totals.live, live.len() as u64);
        assert_eq!(totals.live_fp, fingerprint_rows(&live));
        let mut all: Vec<u64> = tree.leaves.values().flat_map(|l| l.primaries.iter().copied()).collect();
        all.sort_unstable();
        let dead_primaries: Vec<u64> = all.iter().copied().filter(|row| self.dead.contains(row)).collect();
        all.retain(|row| !self.dead.contains(row));
        assert_eq!(all, live);
        assert_eq!(totals.dead_primaries_fp, fingerprint_rows(&dead_primaries));
        let finished = report.is_none_or(|r| r.rounds < 8);
        for leaf in tree.leaves.values() {
            let size = leaf.primaries.iter().filter(|row| self.live.contains(row)).count();
            assert!(size > 0, "leaf {} has no live rows", leaf.id);
            if finished {
                let most = tree.params.split_size as usize;
                assert!(size <= most || leaf.whole, "leaf {} has {size} rows of {most}", leaf.id);
            }
            if leaf.change == Change::Rewritten {
                assert!(leaf.primaries.iter().chain(&leaf.secondaries).all(|row| self.live.contains(row)));
                self.verify_numbers(&leaf.primaries, &leaf.centroid, leaf.r2);
            }
        }
        if let Some(report) = report {
            assert_eq!(report.live, live.len() as u64);
            assert_eq!(report.dead_primaries, dead_primaries);
            assert_eq!(report.dead_secondaries.len() as u64, totals.dead_secondaries);
        }
    }

    /// Centroid and r2 are those of the rows, in f64 by hand.
    fn verify_numbers(&self, rows: &[u64], centroid: &[f32], r2: f32) {
        let dim = self.cfg.dim;
        let prepared: Vec<Vec<f64>> = rows
            .iter()
            .map(|&row| {
                let x: Vec<f64> = (self.rows.vector)(row).into_iter().map(f64::from).collect();
                let norm = x.iter().map(|v| v * v).sum::<f64>().sqrt();
                let scale = if self.cfg.metric == Metric::Cosine { 1.0 / norm } else { 1.0 };
                x.into_iter().map(|v| v * scale).collect()
            })
            .collect();
        let n = rows.len() as f64;
        let size = prepared.iter().flatten().fold(0f64, |m, v| m.max(v.abs()));
        let mut radius = 0.0;
        for i in 0..dim {
            let mean = prepared.iter().map(|x| x[i]).sum::<f64>() / n;
            assert!((mean - f64::from(centroid[i])).abs() <= 1e-5 * size, "{mean} {}", centroid[i]);
            radius += prepared.iter().map(|x| (x[i] - f64::from(centroid[i])).powi(2)).sum::<f64>() / n;
        }
        assert!((radius - f64::from(r2)).abs() <= 1e-4 * radius + 1e-9 * size * size, "{radius} {r2}");
    }

    /// The marks say exactly what differs from the parent.
    fn verify_changes(&self, parent: &Tree, tree: &Tree) {
        assert!(tree.next_id >= parent.next_id);
        for (id, leaf) in &tree.leaves {
            let old = parent.leaves.get(id);
            match (&leaf.change, old) {
                (Change::Clean, Some(old)) => {
                    assert_eq!((&leaf.primaries, &leaf.secondaries), (&old.primaries, &old.secondaries));
                    assert_eq!((&leaf.centroid, leaf.r2, leaf.whole), (&old.centroid, old.r2, old.whole));
                }
                (Change::Appended { primaries, secondaries }, Some(old)) => {
                    assert_eq!((&leaf.centroid, leaf.r2), (&old.centroid, old.r2));
                    for (now, before, new) in [
                        (&leaf.primaries, &old.primaries, primaries),
                        (&leaf.secondaries, &old.secondaries, secondaries),
                    ] {
                        let mut sum = before.clone();
                        sum.extend(new);
                        sum.sort_unstable();
                        assert_eq!(now, &sum);
                    }
                }
                (Change::Rewritten, _) => {}
                (change, None) => panic!("leaf {id} is new but {change:?}"),
            }
            if old.is_none() {
                assert!(*id >= parent.next_id, "id {id} is used again");
            }
        }
        for (id, group) in &tree.groups {
            let old = parent.groups.get(id);
            let clean = group.leaves.iter().all(|l| tree.leaves[l].change == Change::Clean);
            let kept = group.leaves.iter().all(|l| tree.leaves[l].change != Change::Rewritten);
            let same = old.is_some_and(|o| o.leaves == group.leaves);
            assert_eq!(group.changed, !(same && clean), "group {id}");
            assert_eq!(group.recoded, !(same && kept), "group {id}");
            if !group.recoded {
                assert_eq!(old.unwrap().centroid, group.centroid);
            }
        }
        for (id, inner) in &tree.inners {
            let old = parent.inners.get(id);
            let child = |id: &u64| match (tree.groups.get(id), tree.inners.get(id)) {
                (Some(g), _) => (g.changed, g.recoded),
                (_, Some(i)) => (i.changed, i.recoded),
                _ => panic!("child {id}"),
            };
            let same = old.is_some_and(|o| o.children == inner.children);
            assert_eq!(inner.recoded, !same || inner.children.iter().any(|c| child(c).1));
            assert_eq!(inner.changed, !same || inner.children.iter().any(|c| child(c).0));
        }
    }

    /// About this many live rows, chosen by a seeded hash.
    pub fn choose(&self, count: usize, seed: u64) -> Vec<u64> {
        let mut rows: Vec<(u64, u64)> = self.live.iter().map(|&row| (mix(row ^ mix(seed)), row)).collect();
        rows.sort_unstable();
        rows.into_iter().take(count).map(|(_, row)| row).collect()
    }

    /// Share of live rows that are nearer to another leaf of their band than to their own.
    pub fn off_nearest(&self) -> f64 {
        let (off, seen) = self.strays(7);
        off.len() as f64 / seen.max(1) as f64
    }

    /// Live rows (of every n-th row) that are nearer to another leaf of their band than to their own, with the nearest leaf;
    /// and how many rows were looked at.
    pub fn strays(&self, every: u64) -> (Vec<(u64, u64)>, usize) {
        let tree = self.tree.as_ref().unwrap();
        let kernels = Kernels::detect();
        let point = |x: &[f32]| {
            let mut out = vec![0f32; x.len()];
            if self.cfg.metric == Metric::L2 {
                out.copy_from_slice(x)
            } else {
                kernels.normalize(x, &mut out)
            }
            out
        };
        let centers: Vec<(u64, u8, Vec<f32>)> = tree
            .leaves
            .values()
            .map(|l| {
                let c = if self.cfg.metric == Metric::Dot { point(&l.centroid) } else { l.centroid.clone() };
                (l.id, l.band, c)
            })
            .collect();
        let (mut off, mut seen) = (Vec::new(), 0usize);
        for leaf in tree.leaves.values() {
            let own = &centers.iter().find(|c| c.0 == leaf.id).unwrap().2;
            for &row in leaf.primaries.iter().filter(|&&row| self.live.contains(&row) && row % every == 0) {
                let x = point(&(self.rows.vector)(row));
                seen += 1;
                let of_band = centers.iter().filter(|center| center.1 == leaf.band);
                let (nearest, id) = of_band
                    .map(|(id, _, center)| (kernels.l2(&x, center), *id))
                    .min_by(|a, b| a.0.total_cmp(&b.0))
                    .unwrap();
                // Not by rounding.
                if nearest < kernels.l2(&x, own) * 0.99999 {
                    off.push((row, id));
                }
            }
        }
        (off, seen)
    }
}
