//! Refine codes that are not in memory: loaded when they are asked for, the search is the same.

use std::cell::RefCell;
use std::collections::BTreeSet;

use super::{Index, METRICS, sample, shape};
use crate::search::{Effort, LeafPart, LeafSource, NoMask, RefineRow, SearchParams, Searcher};

/// An index whose refine codes are away, in every second leaf or in all.
struct Away<'a> {
    index: &'a Index,
    every: u32,
    loaded: RefCell<BTreeSet<(u64, u32)>>,
}

impl Away<'_> {
    fn name(leaf: u32, part: usize) -> u64 {
        u64::from(leaf) << 8 | part as u64
    }
}

impl LeafSource for Away<'_> {
    fn centroid(&self, leaf: u32) -> &[f32] {
        self.index.centroid(leaf)
    }

    fn parts(&self, leaf: u32) -> usize {
        self.index.parts(leaf)
    }

    fn part(&self, leaf: u32, part: usize) -> LeafPart<'_> {
        let here = self.index.part(leaf, part);
        match leaf.is_multiple_of(self.every) && here.refine.is_some() {
            true => LeafPart { refine: None, away: Some(Self::name(leaf, part)), ..here },
            false => here,
        }
    }

    fn refine_row(&self, away: u64, index: u32) -> Option<RefineRow<'_>> {
        if !self.loaded.borrow().contains(&(away, index)) {
            return None;
        }
        let refine = self.index.part((away >> 8) as u32, away as usize & 0xff).refine?;
        let (i, bytes) = (index as usize, refine.nibbles.len() / refine.f_add.len());
        Some(RefineRow {
            nibbles: &refine.nibbles[i * bytes..(i + 1) * bytes],
            f_add: refine.f_add[i],
            f_rescale: refine.f_rescale[i],
            f_error: refine.f_error[i],
        })
    }
}

#[test]
fn what_is_loaded_late_changes_nothing() {
    for metric in METRICS {
        let (index, queries) = sample(3000, 24, 12, shape(metric));
        let (mut here, mut there) = (Searcher::new(), Searcher::new());
        let mut waits = 0;
        for (query, k) in queries.iter().zip([1, 10, 10, 100].into_iter().cycle()) {
            let cases =
                [(Effort::Margin(0.4), 1, false), (Effort::Leaves(20), 2, true), (Effort::Full, 1, true)];
            for (effort, every, all_at_once) in cases {
                let params = SearchParams { k, effort, ..SearchParams::default() };
                let want = index.search(&mut here, query, &params, &|_| false);
                let away = Away { index: &index, every, loaded: RefCell::default() };
                there.begin(&index.nav, query, &params);
                while !there.next_wave(&index.nav).is_empty() {
                    while !there.scan_wave(&index.nav, &away, &NoMask) {
                        let (rows, needed) = there.missing();
                        assert!(needed > 0 && rows.len() >= needed);
                        let rows = if all_at_once { rows } else { &rows[..needed] };
                        away.loaded.borrow_mut().extend(rows);
                        waits += 1;
                    }
                    if there.should_rerank() {
                        index.measure(&mut there);
                    }
                }
                index.measure(&mut there);
                assert_eq!(index.rank(&mut there, query, k), want, "{metric} {effort:?}");
                assert_eq!(there.counters(), here.counters(), "{metric} {effort:?}");
            }
        }
        assert!(waits > 30, "{waits}");
    }
}

#[test]
fn a_search_that_was_given_up_leaves_nothing_behind() {
    let (index, queries) = sample(2000, 24, 2, shape(METRICS[0]));
    let mut searcher = Searcher::new();
    let params = SearchParams { effort: Effort::Leaves(8), ..SearchParams::default() };
    let away = Away { index: &index, every: 1, loaded: RefCell::default() };
    searcher.begin(&index.nav, &queries[0], &params);
    assert!(!searcher.next_wave(&index.nav).is_empty());
    assert!(!searcher.scan_wave(&index.nav, &away, &NoMask));
    let got = index.search(&mut searcher, &queries[1], &params, &|_| false);
    assert_eq!(got, index.search(&mut Searcher::new(), &queries[1], &params, &|_| false));
}
