//! The rows that may still be among the first k.

use super::order::{ordered, unordered};

/// A row with its estimated distance in prepared space.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Row number.
    pub row: u64,
    /// Estimated distance.
    pub est: f32,
    /// The distance is at least this: surely at full effort, else with eps0 standard errors.
    pub lower: f32,
    /// The distance is at most this, in the same sense.
    pub upper: f32,
    /// Rank of the first leaf in which the row was seen.
    pub(crate) rank: u32,
}

impl Candidate {
    /// Joins two sightings of one row, in any order: the tighter estimate, the stricter bounds.
    fn merge(&mut self, other: &Candidate) {
        let (width, other_width) = (self.upper - self.lower, other.upper - other.lower);
        if (other_width, other.est) < (width, self.est) {
            self.est = other.est;
        }
        // The estimate stays inside: a row whose lower bound passed its upper would rule itself out.
        self.lower = self.lower.max(other.lower).min(self.est);
        self.upper = self.upper.min(other.upper).max(self.est);
        self.rank = self.rank.min(other.rank);
    }
}

/// Value of a row that was measured exactly: further sightings say nothing new.
const MEASURED: u32 = u32::MAX;

/// Candidates, each row once.
#[derive(Default)]
pub(crate) struct CandidateSet {
    list: Vec<Candidate>,
    places: RowTable,
    /// Rows that were measured: a second copy of one must not come back as a candidate.
    measured: Vec<u64>,
    /// Number of candidates after they were pruned last.
    pruned: usize,
    uppers: Smallest,
    ests: Smallest,
    /// A row's bounds changed after it was counted, or rows were taken out: `uppers` and `ests` do not hold.
    stale: bool,
}

/// Candidates more than the last time, or k more, are pruned.
const FEW: usize = 64;

impl CandidateSet {
    /// Empties the set for a search of k rows.
    pub(crate) fn begin(&mut self, k: usize) {
        self.pruned = 0;
        self.uppers.begin(k);
        self.ests.begin(k);
        self.stale = false;
        self.list.clear();
        self.places.clear();
        self.measured.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn list(&self) -> &[Candidate] {
        &self.list
    }

    /// Adds a row, or joins it with what is known of it.
    pub(crate) fn push(&mut self, candidate: Candidate) {
        let place = self.list.len() as u32;
        match self.places.insert(candidate.row, place) {
            None => {
                self.uppers.offer(candidate.upper);
                self.ests.offer(candidate.est);
                self.list.push(candidate);
            }
            Some(MEASURED) => {}
            Some(known) => {
                self.stale = true;
                self.list[known as usize].merge(&candidate);
            }
        }
    }

    /// The k-th smallest upper bound.
    pub(crate) fn kth_upper(&mut self, scratch: &mut Vec<u32>) -> f32 {
        match self.stale {
            false => self.uppers.kth(),
            true => kth_smallest(scratch, self.list.iter().map(|c| c.upper), self.uppers.k),
        }
    }

    /// The k-th smallest estimate; none if it would have to be looked for.
    pub(crate) fn kth_estimate(&mut self) -> Option<f32> {
        match self.stale {
            false => Some(self.ests.kth()),
            true => None,
        }
    }

    /// Whether a row is a candidate, or measured.
    pub(crate) fn knows(&self, row: u64) -> bool {
        self.places.get(row).is_some()
    }

    /// [`CandidateSet::prune`], once there are many more than the last time: dropping rows costs more than keeping a
    /// few that the re-ranking will not ask for.
    pub(crate) fn prune_if_many(&mut self, threshold: f32, k: usize) {
        if self.list.len() > self.pruned + FEW.max(k) {
            self.prune(threshold);
            self.pruned = self.list.len();
        }
    }

    /// Drops rows that are surely beyond `threshold`; a NaN bound says nothing.
    fn prune(&mut self, threshold: f32) {
        let before = self.list.len();
        self.list.retain(|c| !beyond(c.lower, threshold));
        if self.list.len() < before {
            self.place_all();
        }
    }

    fn place_all(&mut self) {
        self.places.clear();
        for row in &self.measured {
            self.places.insert(*row, MEASURED);
        }
        for (place, c) in self.list.iter().enumerate() {
            self.places.insert(c.row, place as u32);
        }
    }

    /// Drops rows that are surely beyond `threshold` and sorts by estimate, then row. Nothing may be pushed afterwards
    /// until [`CandidateSet::restart`].
    pub(crate) fn sort(&mut self, threshold: f32) {
        self.list.retain(|c| !beyond(c.lower, threshold));
        self.list.sort_unstable_by_key(|c| (ordered(c.est), c.row));
    }

    /// Drops the first `done` of the sorted list and takes rows again, except those that were `measured`.
    pub(crate) fn restart(&mut self, done: usize, measured: impl Iterator<Item = u64>) {
        self.list.drain(..done);
        self.stale = true;
        self.pruned = self.list.len();
        self.measured.clear();
        self.measured.extend(measured);
        self.place_all();
    }
}

/// Whether a lower bound rules a row out.
#[inline]
pub(crate) fn beyond(lower: f32, threshold: f32) -> bool {
    lower > threshold
}

/// Up to this k the k smallest values are kept in order while all are looked at; above it they are selected.
const SMALL: usize = 16;

/// The k-th smallest value (k >= 1), infinity if there are fewer. NaN counts as infinity.
pub(crate) fn kth_smallest(scratch: &mut Vec<u32>, values: impl Iterator<Item = f32>, k: usize) -> f32 {
    if k <= SMALL {
        return kth_of_few(values, k);
    }
    scratch.clear();
    scratch.extend(values.map(ordered));
    if scratch.len() < k {
        return f32::INFINITY;
    }
    unordered(*scratch.select_nth_unstable(k - 1).1)
}

/// [`kth_smallest`] for several k (ascending).
pub(crate) fn kths_smallest<const N: usize>(
    scratch: &mut Vec<u32>,
    values: impl Iterator<Item = f32>,
    ks: &[usize; N],
) -> [f32; N] {
    scratch.clear();
    scratch.extend(values.map(ordered));
    let mut out = [f32::INFINITY; N];
    // The k smallest come first, and the smaller k's are among them.
    let mut among = scratch.len();
    for (out, &k) in out.iter_mut().zip(ks).rev() {
        if k <= among {
            *out = unordered(*scratch[..among].select_nth_unstable(k - 1).1);
            among = k;
        }
    }
    out
}

fn kth_of_few(values: impl Iterator<Item = f32>, k: usize) -> f32 {
    let mut best = [f32::INFINITY; SMALL];
    let best = &mut best[..k];
    let mut bound = f32::INFINITY;
    for v in values {
        // Not true of a NaN.
        if v < bound {
            let mut place = k - 1;
            while place > 0 && best[place - 1] > v {
                best[place] = best[place - 1];
                place -= 1;
            }
            best[place] = v;
            bound = best[k - 1];
        }
    }
    bound
}

/// The k smallest of the values offered so far, and some more: a selection now and then costs less than a heap in order.
#[derive(Default)]
pub(crate) struct Smallest {
    k: usize,
    values: Vec<u32>,
    /// Values from here on are not among the k smallest.
    bound: u32,
    /// The k-th is the last of k values, and `bound`.
    settled: bool,
}

impl Smallest {
    pub(crate) fn begin(&mut self, k: usize) {
        self.k = k;
        self.values.clear();
        (self.bound, self.settled) = (u32::MAX, false);
    }

    #[inline]
    pub(crate) fn offer(&mut self, value: f32) {
        let value = ordered(value);
        if value < self.bound {
            self.values.push(value);
            self.settled = false;
            if self.values.len() >= self.k.saturating_mul(2).max(MANY) {
                self.settle();
            }
        }
    }

    /// The k-th smallest, infinity if there were fewer.
    pub(crate) fn kth(&mut self) -> f32 {
        if self.values.len() < self.k {
            return f32::INFINITY;
        }
        if !self.settled {
            self.settle();
        }
        unordered(self.bound)
    }

    fn settle(&mut self) {
        if self.values.len() >= self.k {
            self.bound = *self.values.select_nth_unstable(self.k - 1).1;
            self.values.truncate(self.k);
            self.settled = true;
        }
    }
}

/// Values collected before the k smallest are selected, at least.
const MANY: usize = 64;

/// Maps row numbers to places: open addressing, emptied in constant time, grows and never shrinks.
#[derive(Default)]
struct RowTable {
    slots: Vec<Slot>,
    used: usize,
    epoch: u32,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    row: u64,
    /// The slot is free unless this is the table's epoch.
    epoch: u32,
    place: u32,
}

impl RowTable {
    fn clear(&mut self) {
        self.used = 0;
        self.epoch = self.epoch.wrapping_add(1);
        if self.epoch == 0 {
            self.slots.fill(Slot::default());
            self.epoch = 1;
        }
    }

    /// Remembers the place of a new row; returns the place of a known one.
    #[inline]
    fn insert(&mut self, row: u64, place: u32) -> Option<u32> {
        if 2 * self.used >= self.slots.len() {
            self.grow();
        }
        let slot = self.find(row);
        if self.slots[slot].epoch == self.epoch {
            return Some(self.slots[slot].place);
        }
        self.slots[slot] = Slot { row, epoch: self.epoch, place };
        self.used += 1;
        None
    }

    #[inline]
    fn get(&self, row: u64) -> Option<u32> {
        if self.used == 0 {
            return None;
        }
        let slot = &self.slots[self.find(row)];
        (slot.epoch == self.epoch).then_some(slot.place)
    }

    /// The slot of `row`, or the free one where it belongs.
    #[inline]
    fn find(&self, row: u64) -> usize {
        let mask = self.slots.len() - 1;
        // Fibonacci hashing; the high bits are the mixed ones.
        let mut slot = (row.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize & mask;
        while self.slots[slot].epoch == self.epoch && self.slots[slot].row != row {
            slot = (slot + 1) & mask;
        }
        slot
    }

    fn grow(&mut self) {
        let size = (2 * self.slots.len()).max(256);
        let old = std::mem::replace(&mut self.slots, vec![Slot::default(); size]);
        // Epoch 0 marks free slots.
        self.epoch = self.epoch.max(1);
        for s in old.into_iter().filter(|s| s.epoch == self.epoch) {
            let slot = self.find(s.row);
            self.slots[slot] = s;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(row: u64, est: f32, err: f32) -> Candidate {
        Candidate { row, est, lower: est - err, upper: est + err, rank: row as u32 }
    }

    #[test]
    fn rows_are_kept_once_and_joined_in_any_order() {
        for flip in [false, true] {
            let mut set = CandidateSet::default();
            set.begin(1);
            let mut sightings = [candidate(7, 5.0, 1.0), candidate(7, 5.5, 2.0)];
            if flip {
                sightings.reverse();
            }
            for c in sightings {
                set.push(c);
            }
            assert_eq!(set.list(), &[Candidate { row: 7, est: 5.0, lower: 4.0, upper: 6.0, rank: 7 }]);
        }
    }

    #[test]
    fn prune_keeps_places_right() {
        let mut set = CandidateSet::default();
        set.begin(10);
        for row in 0..1000 {
            set.push(candidate(row * 3, row as f32, 0.5));
        }
        set.prune(99.5);
        assert_eq!(set.len(), 101);
        for row in 0..101 {
            set.push(candidate(row * 3, row as f32, 0.25));
        }
        assert_eq!(set.len(), 101);
        assert!(set.list().iter().all(|c| c.upper - c.lower == 0.5));
        set.restart(101, [3, 6].into_iter());
        set.push(candidate(3, 1.0, 0.0));
        set.push(candidate(9, 1.0, 0.0));
        assert_eq!(set.len(), 1);
    }

    #[test]
    fn the_kth_bounds_follow_every_change() {
        let mut scratch = Vec::new();
        let check = |set: &mut CandidateSet, scratch: &mut Vec<u32>| {
            let upper = set.kth_upper(&mut Vec::new());
            assert_eq!(upper, kth_smallest(scratch, set.list().iter().map(|c| c.upper), 7));
            if let Some(kth) = set.kth_estimate() {
                assert_eq!(kth, kth_smallest(scratch, set.list().iter().map(|c| c.est), 7));
            }
        };
        let mut set = CandidateSet::default();
        set.begin(7);
        for row in 0..500u64 {
            check(&mut set, &mut scratch);
            set.push(candidate(row, ((row * 7919) % 501) as f32, 3.0));
            let upper = set.kth_upper(&mut scratch);
            set.prune_if_many(upper, 7);
        }
        assert!(set.kth_estimate().is_some());
        // A second sighting with a smaller bound, then rows that are taken out.
        set.push(Candidate { upper: 0.25, lower: 0.0, est: 0.2, row: 0, rank: 0 });
        check(&mut set, &mut scratch);
        set.sort(f32::INFINITY);
        set.restart(3, std::iter::empty());
        check(&mut set, &mut scratch);
    }

    #[test]
    fn contradicting_sightings_never_rule_out_their_row() {
        let mut a = candidate(1, 1.0, 0.1);
        a.merge(&candidate(1, 3.0, 0.5));
        assert!(a.lower <= a.est && a.est <= a.upper);
    }

    #[test]
    fn kth() {
        let mut scratch = Vec::new();
        let values = [3.0, f32::NAN, -1.0, 2.0];
        assert_eq!(kth_smallest(&mut scratch, values.into_iter(), 1), -1.0);
        assert_eq!(kth_smallest(&mut scratch, values.into_iter(), 3), 3.0);
        assert_eq!(kth_smallest(&mut scratch, values.into_iter(), 4), f32::INFINITY);
        assert_eq!(kth_smallest(&mut scratch, values.into_iter(), 5), f32::INFINITY);
        let wanted = [1, 3, 4, 5].map(|k| kth_smallest(&mut scratch, values.into_iter(), k));
        assert_eq!(kths_smallest(&mut scratch, values.into_iter(), &[1, 3, 4, 5]), wanted);
    }
}
