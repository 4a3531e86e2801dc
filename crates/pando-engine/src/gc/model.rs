//! A model of roots and their garbage, searched exhaustively: two compactors that race and repeat checkpoints, two sweeps
//! that may sleep or stop between any two steps, somebody who names a root, and time. Decisions are the functions of
//! [`super::rules`]; each rule is also broken on purpose, and the search must then find the fault.

use std::collections::{HashSet, VecDeque};

use super::rules::{may_delete, may_name, oldest_kept};

/// Roots 1..=N; root d is published by head d, and a checkpoint of a given root always makes the same next one.
const N: u8 = 3;
/// Ticks that a root is kept after another took its place.
const RETENTION: u8 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    Nothing,
    /// Everything unreachable is deleted, however deep.
    NoDepthRule,
    /// The head that bounds the depth is read after kept roots were listed.
    HeadReadLate,
    /// Names are looked for before the mark is written.
    NamesBeforeMark,
    /// No mark is written.
    NoMark,
    /// Whoever names a root looks for marks before the name is written.
    LooksBeforeNaming,
    /// Names are not looked for.
    NamesIgnored,
    /// The root before the newest old one is the first kept: one too few.
    OldestTooYoung,
    /// Only the newest root is kept.
    NoRetention,
}

/// Set of depths, as bits.
type Set = u8;

fn bit(depth: u8) -> Set {
    1 << depth
}

/// Objects that root d reaches, by the depth at which they were written: its parent's and its own.
fn reach(depth: u8) -> Set {
    bit(depth.max(2) - 1) | bit(depth)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
struct World {
    objects: Set,
    manifests: Set,
    head: u8,
    /// Age of each head up to the retention.
    age: [u8; N as usize + 2],
    compactors: [Compactor; 2],
    sweeps: [Sweep; 2],
    /// Depth up to which a mark says that roots may go.
    mark: u8,
    naming: Naming,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
struct Compactor {
    /// 0 idle, 1 has read its base, 2 has written its object, 3 its manifest.
    step: u8,
    base: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
struct Sweep {
    /// 0 idle, 1 has read the head, 2 has written the mark, 3 deletes.
    step: u8,
    up_to: u8,
    oldest: u8,
    names: Set,
    objects: Set,
    manifests: Set,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
struct Naming {
    /// 0 idle, 1 looked (when it looks first), 2 written, 3 promised, 4 refused.
    step: u8,
    root: u8,
    seen: u8,
}

type Fault = &'static str;
/// Takes steps that may follow a state.
type Stepper<'a> = dyn FnMut(&dyn Fn(&mut World)) + 'a;

impl World {
    fn check(&self) -> Result<(), Fault> {
        let whole = |d: u8| reach(d) & !self.objects == 0 && self.manifests & bit(d) != 0;
        for d in 1..=self.head {
            let recent = d == self.head || self.age[d as usize + 1] < RETENTION;
            if recent && !whole(d) {
                return Err("a root that is kept for its age is not whole");
            }
            if self.naming.step == 3 && self.naming.root == d && !whole(d) {
                return Err("a root that was promised to its name is not whole");
            }
        }
        Ok(())
    }

    fn steps(&self, broken: Broken, out: &mut Vec<World>) {
        let mut step = |f: &dyn Fn(&mut World)| {
            let mut next = *self;
            f(&mut next);
            if next != *self {
                out.push(next);
            }
        };
        step(&|w| {
            for d in 1..=w.head {
                w.age[d as usize] = (w.age[d as usize] + 1).min(RETENTION);
            }
        });
        for i in 0..2 {
            let Compactor { step: at, base } = self.compactors[i];
            let next = base + 1;
            step(&|w| match at {
                0 if w.head < N => w.compactors[i] = Compactor { step: 1, base: w.head },
                1 => {
                    w.objects |= bit(next);
                    w.compactors[i].step = 2;
                }
                2 => {
                    w.manifests |= bit(next);
                    w.compactors[i].step = 3;
                }
                3 => {
                    if w.head == base {
                        w.head = next;
                    }
                    w.compactors[i] = Compactor::default();
                }
                _ => {}
            });
            self.sweep_steps(i, broken, &mut step);
        }
        self.naming_steps(broken, &mut step);
    }

    fn held(&self, sweep: &Sweep) -> (Set, Set) {
        let kept = (1..=self.head).filter(|&d| d >= sweep.oldest || sweep.names & bit(d) != 0);
        kept.fold((0, 0), |(objects, manifests), d| (objects | reach(d), manifests | bit(d)))
    }

    fn names(&self, broken: Broken) -> Set {
        let named = matches!(self.naming.step, 2 | 3) && broken != Broken::NamesIgnored;
        if named { bit(self.naming.root) } else { 0 }
    }

    fn sweep_steps(&self, i: usize, broken: Broken, step: &mut Stepper<'_>) {
        let sweep = self.sweeps[i];
        match sweep.step {
            0 if self.head > 0 => step(&|w| {
                let old = (1..=w.head).rev().find(|&d| w.age[d as usize] >= RETENTION);
                let mut oldest = oldest_kept(old.map(u64::from)) as u8;
                match broken {
                    Broken::OldestTooYoung => oldest = (oldest + 1).min(w.head),
                    Broken::NoRetention => oldest = w.head,
                    _ => {}
                }
                let names = w.names(broken);
                w.sweeps[i] = Sweep { step: 1, up_to: w.head, oldest, names, ..Sweep::default() };
            }),
            1 => step(&|w| {
                if broken != Broken::NoMark {
                    w.mark = w.mark.max(sweep.oldest - 1);
                }
                w.sweeps[i].step = 2;
            }),
            2 => step(&|w| {
                let mut sweep = sweep;
                if broken != Broken::NamesBeforeMark {
                    sweep.names = w.names(broken);
                }
                (sweep.objects, sweep.manifests) = w.held(&sweep);
                sweep.step = 3;
                w.sweeps[i] = sweep;
            }),
            3 => {
                let up_to = match broken {
                    Broken::NoDepthRule => u64::MAX,
                    Broken::HeadReadLate => self.head.into(),
                    _ => sweep.up_to.into(),
                };
                for d in 1..=N {
                    if may_delete(d.into(), up_to, sweep.manifests & bit(d) != 0) {
                        step(&|w| w.manifests &= !bit(d));
                    }
                    if may_delete(d.into(), up_to, sweep.objects & bit(d) != 0) {
                        step(&|w| w.objects &= !bit(d));
                    }
                }
                step(&|w| w.sweeps[i] = Sweep::default());
            }
            _ => {}
        }
    }

    fn naming_steps(&self, broken: Broken, step: &mut Stepper<'_>) {
        let marked = |mark: u8| (mark > 0).then_some(u64::from(mark));
        let Naming { step: at, root, seen } = self.naming;
        match at {
            0 => {
                for root in 1..=self.head {
                    step(&|w| {
                        let next = if broken == Broken::LooksBeforeNaming { 1 } else { 2 };
                        w.naming = Naming { step: next, root, seen: w.mark };
                    });
                }
            }
            1 => step(&|w| w.naming.step = 2),
            2 => step(&|w| {
                let mark = if broken == Broken::LooksBeforeNaming { seen } else { w.mark };
                w.naming.step = if may_name(root.into(), marked(mark)) { 3 } else { 4 };
            }),
            _ => {}
        }
    }
}

/// Visits every state. States, whether a sweep deleted something and a name was kept, and the first fault.
fn search(broken: Broken) -> (usize, bool, bool, Option<Fault>) {
    let mut seen = HashSet::from([World::default()]);
    let mut frontier = VecDeque::from([World::default()]);
    let (mut collected, mut promised) = (false, false);
    let mut next = Vec::new();
    while let Some(world) = frontier.pop_front() {
        collected |= world.head == N && world.manifests == bit(N) && world.objects == reach(N);
        promised |= world.naming.step == 3 && world.naming.root < world.head;
        world.steps(broken, &mut next);
        for world in next.drain(..) {
            if let Err(fault) = world.check() {
                return (seen.len(), collected, promised, Some(fault));
            }
            if seen.insert(world) {
                frontier.push_back(world);
            }
        }
    }
    (seen.len(), collected, promised, None)
}

#[test]
fn kept_and_named_roots_stay_whole() {
    let (states, collected, promised, fault) = search(Broken::Nothing);
    println!("{states} states");
    assert_eq!(fault, None);
    assert!(collected && promised, "the model is too narrow");
}

#[test]
fn broken_rules_are_noticed() {
    use Broken::*;
    let rules = [
        NoDepthRule,
        HeadReadLate,
        NamesBeforeMark,
        NoMark,
        LooksBeforeNaming,
        NamesIgnored,
        OldestTooYoung,
        NoRetention,
    ];
    for broken in rules {
        let (states, .., fault) = search(broken);
        println!("{broken:?}: {fault:?} in {states} states");
        assert!(fault.is_some(), "{broken:?} goes unnoticed in {states} states");
    }
}
