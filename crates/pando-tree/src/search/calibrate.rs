//! From a recall target to a margin of the stopping rule.
//!
//! A fixed sample of live rows, each left out of its own answer, is searched once with a wide beam. The walk of a
//! narrower search is a prefix of that walk: waves are fixed by rank, so up to the leaf at which it stops it has seen
//! the same leaves and the same T. Hence each leaf has one number, the largest excess `d' - d'_0 / 2 - T / 2` up to
//! it, and is scanned exactly when the margin is at least that; and a true neighbour is found exactly when the margin
//! is at least the number of the first leaf that holds it. The margin for a target is the quantile of these numbers at
//! the target plus two standard errors. (INDEX_STUDY.md section 9, last paragraph.)

use rayon::prelude::*;

use super::leaf::{LeafSource, RowMask};
use super::nav::Nav;
use super::searcher::{DEFAULT_EPS0, Effort, NARROW_EPS0, SearchParams, Searcher, WIDE_EPS0};
use crate::hashing::hash;
use crate::{TreeError, VectorSource};

/// Values of k for which margins are kept.
pub const K_STEPS: [usize; 6] = [1, 10, 30, 100, 300, 1000];
/// Recall targets for which margins are kept.
pub const TARGETS: [f32; 12] = [0.80, 0.85, 0.90, 0.92, 0.94, 0.95, 0.96, 0.97, 0.98, 0.99, 0.995, 0.999];

/// Rows in the sample.
const SAMPLE: usize = 256;
/// Rows in the sample of a large collection.
const LARGE_SAMPLE: usize = 512;
/// A collection is large from here.
const LARGE: u64 = 50_000;
/// A k of one in so many rows scans every leaf: to know k rows takes most leaves anyway, and margins between the
/// table's k mean nothing where the larger one is reached by that alone.
const LARGE_K: u64 = 5;
/// Standard errors of the sample that a target is passed by. With one and 256 rows, builds of minilm_wordnet reached 0.943 to
/// 0.963 at target 0.95, and 0.889 to 0.939 for queries unlike the rows (lemma).
const ERRORS: f64 = 2.0;
/// Leaves of the first beam.
const FIRST_BEAM: usize = 1024;
/// The beam is this many times as wide as that of recall 0.99, or everything.
const WIDTH: usize = 4;
/// Rank of the hash that picks the sample among all uses of the seed.
const DOMAIN: u64 = 0x6361_6c69_6272_6174;

/// Margins of the stopping rule by k ([`K_STEPS`]) and recall target ([`TARGETS`]); finite, never falling along a row.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MarginTable {
    /// `margins[k][target]`.
    pub margins: [[f32; TARGETS.len()]; K_STEPS.len()],
}

/// The margin for any k and target: interpolated in the target; between two k of the table the larger margin (what is
/// needed need not rise or fall evenly with k). Targets and k beyond the table get its border.
pub fn margin_for(table: &MarginTable, k: usize, target: f32) -> f32 {
    let above = K_STEPS.partition_point(|&step| step < k).min(K_STEPS.len() - 1);
    let margin = along(&table.margins[above], target);
    if K_STEPS[above] <= k || above == 0 {
        margin
    } else {
        margin.max(along(&table.margins[above - 1], target))
    }
}

/// The effort for a recall target, in an index of `live` rows. Without a table (nothing was calibrated), or when a
/// good part of all rows is wanted, every leaf is scanned; a target of 1 is full effort.
pub fn effort_for(table: Option<&MarginTable>, k: usize, target: f32, live: u64) -> Effort {
    match table {
        _ if target >= 1.0 => Effort::Full,
        Some(table) if (k as u64).saturating_mul(LARGE_K) < live => {
            Effort::Margin(margin_for(table, k, target))
        }
        _ => Effort::Margin(f32::INFINITY),
    }
}

/// Standard errors of the bounds for a recall target: what they lose is little beside what the target leaves.
pub fn eps0_for(target: f32) -> f32 {
    match target {
        t if t <= 0.96 => NARROW_EPS0,
        t if t <= 0.99 => DEFAULT_EPS0,
        _ => WIDE_EPS0,
    }
}

fn along(margins: &[f32; TARGETS.len()], target: f32) -> f32 {
    let above = TARGETS.partition_point(|&t| t < target);
    match above {
        0 => margins[0],
        n if n == TARGETS.len() => margins[n - 1],
        n => {
            let part = (target - TARGETS[n - 1]) / (TARGETS[n] - TARGETS[n - 1]);
            margins[n - 1] + (margins[n] - margins[n - 1]) * part
        }
    }
}

/// Gives the leaves to scan. Called from several threads.
pub trait CalibrationSource: Sync {
    /// Loads the leaves of these ordinals and calls `f` with them, once.
    fn with_leaves(&self, ordinals: &[u32], f: &mut dyn FnMut(&dyn LeafSource)) -> Result<(), TreeError>;
}

/// The rows to calibrate with: those of the smallest seeded hash, 256, or 512 from 50,000 live rows.
pub fn sample_rows(seed: u64, live: impl Iterator<Item = u64>, live_count: u64) -> Vec<u64> {
    let count = if live_count >= LARGE { LARGE_SAMPLE } else { SAMPLE };
    let mut best: Vec<(u64, u64)> = Vec::with_capacity(2 * count);
    for row in live {
        best.push((hash(&[DOMAIN, seed, row]), row));
        if best.len() == 2 * count {
            best.select_nth_unstable(count);
            best.truncate(count);
        }
    }
    best.sort_unstable();
    best.truncate(count);
    best.into_iter().map(|(_, row)| row).collect()
}

/// Computes the margins of a root. `hidden` are the rows that do not count (dead ones). The result depends on the
/// index and the sample alone.
pub fn calibrate(
    nav: &Nav,
    sample: &[u64],
    leaves: &dyn CalibrationSource,
    vectors: &dyn VectorSource,
    hidden: &(dyn RowMask + Sync),
    pool: &rayon::ThreadPool,
) -> Result<MarginTable, TreeError> {
    let mut beam = FIRST_BEAM.min(nav.leaves());
    loop {
        let walks = pool.install(|| {
            let walk = |searcher: &mut Searcher, &row: &u64| {
                Walk::run(searcher, nav, row, beam, leaves, vectors, hidden)
            };
            sample.par_iter().map_init(Searcher::new, walk).collect::<Result<Vec<Walk>, TreeError>>()
        })?;
        let wanted = WIDTH * widest_rank(&walks);
        if beam >= nav.leaves() || wanted <= beam {
            return Ok(MarginTable { margins: std::array::from_fn(|k| curve(&walks, k)) });
        }
        beam = wanted.next_power_of_two().min(nav.leaves());
    }
}

/// What one sampled row's wide search saw.
struct Walk {
    /// For each k: the margin from which on each true neighbour is found.
    found_at: [Vec<f32>; K_STEPS.len()],
    /// One more than the rank of the leaf of each of the true neighbours (largest k).
    ranks: Vec<u32>,
}

impl Walk {
    fn run(
        searcher: &mut Searcher,
        nav: &Nav,
        row: u64,
        beam: usize,
        leaves: &dyn CalibrationSource,
        vectors: &dyn VectorSource,
        hidden: &(dyn RowMask + Sync),
    ) -> Result<Walk, TreeError> {
        let frame = nav.frame();
        let mut query = vec![0.0; frame.dim()];
        vectors.read(&[row], &mut query)?;
        let k = K_STEPS[K_STEPS.len() - 1];
        searcher.begin(nav, &query, &SearchParams { k, eps0: WIDE_EPS0, effort: Effort::Leaves(beam) });
        let mask = |other: u64| other == row || hidden.hidden(other);
        // For each rank and k the excess.
        let mut numbers: Vec<[f32; K_STEPS.len()]> = Vec::with_capacity(beam);
        let (mut wave, mut scores) = (Vec::new(), Vec::new());
        let mut estimates = [f32::INFINITY; K_STEPS.len()];
        loop {
            wave.clear();
            wave.extend_from_slice(searcher.next_wave(nav));
            if wave.is_empty() {
                break;
            }
            scores.clear();
            scores.extend_from_slice(searcher.wave_scores());
            leaves.with_leaves(&wave, &mut |loaded| {
                let mut rest = &scores[..];
                loop {
                    let (step, after) = rest.split_at(searcher.step(nav, loaded, &mask));
                    if step.is_empty() {
                        break;
                    }
                    // Judged by T as it was before the step.
                    numbers.extend(step.iter().map(|&score| estimates.map(|t| searcher.excess(score, t))));
                    estimates = searcher.estimates(&K_STEPS);
                    rest = after;
                }
            })?;
            searcher.end_wave();
        }
        // The largest excess up to each rank.
        for rank in 1..numbers.len() {
            for k in 0..K_STEPS.len() {
                numbers[rank][k] = numbers[rank][k].max(numbers[rank - 1][k]);
            }
        }
        let mut ranks: Vec<(u64, u32)> = searcher.candidates().iter().map(|c| (c.row, c.rank)).collect();
        ranks.sort_unstable();
        measure(searcher, frame.dim(), vectors, |query, x| frame.exact(query, x))?;
        let rank_of = |row: u64| ranks[ranks.partition_point(|r| r.0 < row)].1;
        let truth: Vec<u32> = searcher.finish().iter().take(k).map(|hit| rank_of(hit.row)).collect();
        let found_at = std::array::from_fn(|i| {
            truth.iter().take(K_STEPS[i]).map(|&rank| numbers[rank as usize][i]).collect()
        });
        Ok(Walk { found_at, ranks: truth.iter().map(|rank| rank + 1).collect() })
    }
}

/// Feeds exact distances until the bound closes.
fn measure(
    searcher: &mut Searcher,
    dim: usize,
    vectors: &dyn VectorSource,
    exact: impl Fn(&[f32], &[f32]) -> f32,
) -> Result<(), TreeError> {
    let mut rows = Vec::new();
    let mut values = Vec::new();
    let mut distances = Vec::new();
    loop {
        rows.clear();
        rows.extend_from_slice(searcher.next_rerank());
        if rows.is_empty() {
            return Ok(());
        }
        values.resize(rows.len() * dim, 0.0);
        vectors.read(&rows, &mut values)?;
        distances.clear();
        distances.extend(values.chunks_exact(dim).map(|x| exact(searcher.prepared_query(), x)));
        searcher.feed_rerank(&distances);
    }
}

/// Number of leaves in rank order that hold 99 of 100 true neighbours.
fn widest_rank(walks: &[Walk]) -> usize {
    let mut ranks: Vec<u32> = walks.iter().flat_map(|w| w.ranks.iter().copied()).collect();
    if ranks.is_empty() {
        return 0;
    }
    // Less than the length.
    let place = ranks.len() * 99 / 100;
    *ranks.select_nth_unstable(place).1 as usize
}

/// For each target the smallest margin at which the mean recall less [`ERRORS`] standard errors reaches it.
fn curve(walks: &[Walk], k: usize) -> [f32; TARGETS.len()] {
    let mut events: Vec<(f32, u32)> = Vec::new();
    let mut counted = 0u32;
    for (i, walk) in walks.iter().enumerate() {
        events.extend(walk.found_at[k].iter().map(|&margin| (margin, i as u32)));
        counted += u32::from(!walk.found_at[k].is_empty());
    }
    events.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    // The first wave is scanned whatever the margin: any finite number does for what lies in it.
    let finite = events.iter().map(|e| e.0).find(|m| m.is_finite()).unwrap_or(0.0);
    let mut found = vec![0u32; walks.len()];
    let (mut sum, mut squares) = (0.0f64, 0.0f64);
    let mut margins = [finite; TARGETS.len()];
    let mut target = 0;
    for (at, &(margin, i)) in events.iter().enumerate() {
        let i = i as usize;
        let of = walks[i].found_at[k].len() as f64;
        let (before, after) = (f64::from(found[i]) / of, f64::from(found[i] + 1) / of);
        found[i] += 1;
        sum += after - before;
        squares += after * after - before * before;
        if events.get(at + 1).is_some_and(|next| next.0 == margin) {
            continue;
        }
        let n = f64::from(counted);
        let mean = sum / n;
        let error = ((squares / n - mean * mean).max(0.0) / n).sqrt();
        let last = at + 1 == events.len();
        while target < TARGETS.len() && (last || mean - ERRORS * error >= f64::from(TARGETS[target])) {
            margins[target] = margin.max(finite);
            target += 1;
        }
    }
    margins
}
