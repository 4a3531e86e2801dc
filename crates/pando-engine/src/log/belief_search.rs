//! The search through the states of the model, and what it must find: no fault with all rules, one with each of them broken.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::hash::BuildHasherDefault;

use super::*;

/// What a search came to.
struct Searched {
    states: usize,
    fault: Option<(Fault, Vec<&'static str>)>,
    acknowledged: bool,
    read: bool,
    names: BTreeSet<&'static str>,
}

/// Visits every state that can be reached, breadth first; stops at the first fault. A state is known by a hash of
/// 128 bits: that two of some millions share one is not to be expected.
fn search(scenario: Scenario) -> Searched {
    let mut seen: HashSet<u128, BuildHasherDefault<Low>> = HashSet::default();
    seen.insert(World::new().hash());
    let mut frontier = VecDeque::from([World::new()]);
    let mut steps: Vec<(u32, &'static str)> = vec![(0, "")];
    let (mut acknowledged, mut read) = (false, false);
    let mut names = BTreeSet::new();
    let mut next = Vec::new();
    let mut at = 0u32;
    while let Some(world) = frontier.pop_front() {
        acknowledged |= world.acked == 0b111;
        read |= world.reader.phase == Phase::Done;
        world.steps(&scenario, &mut next);
        for (name, result) in next.drain(..) {
            names.insert(name);
            match result {
                Ok(world) => {
                    if seen.insert(world.hash()) {
                        frontier.push_back(world);
                        steps.push((at, name));
                    }
                }
                Err(fault) => {
                    let mut trace = vec![name];
                    let mut back = at;
                    while back != 0 {
                        let (before, name) = steps[back as usize];
                        trace.push(name);
                        back = before;
                    }
                    trace.reverse();
                    return Searched {
                        states: steps.len(),
                        fault: Some((fault, trace)),
                        acknowledged,
                        read,
                        names,
                    };
                }
            }
        }
        at += 1;
    }
    Searched { states: steps.len(), fault: None, acknowledged, read, names }
}

fn must_hold(scenario: Scenario) {
    let found = search(scenario);
    println!("{scenario:?}: {} states; {:?}", found.states, found.names);
    if let Some((fault, trace)) = found.fault {
        panic!("{fault}:\n  {}", trace.join("\n  "));
    }
    assert!(found.acknowledged, "in no order of events are all writes acknowledged: the model is too narrow");
    assert!(found.read || !scenario.reader);
}

fn must_fail(broken: Broken, scenario: Scenario) {
    let found = search(Scenario { broken, ..scenario });
    let (fault, trace) =
        found.fault.unwrap_or_else(|| panic!("{broken:?} goes unnoticed in {} states", found.states));
    println!("{broken:?}: {fault} after {} steps, {} states", trace.len(), found.states);
}

/// Requests and looks side by side; two ticks of retention, so that half of it is not nothing.
const WRITERS_BESIDE: Scenario =
    Scenario { beside: true, retention: 2, deadlines: false, faults: false, reader: false, ..CALM };
const READER_BESIDE: Scenario =
    Scenario { reader_beside: true, retention: 2, deadlines: false, faults: false, ..CALM };

#[test]
fn the_rules_hold_for_writers() {
    must_hold(Scenario { reader: false, ..CALM });
    must_hold(Scenario { reader: false, window: 1, ..CALM });
}

#[test]
fn the_rules_hold_for_strong_reads() {
    must_hold(Scenario { deadlines: false, ..CALM });
}

#[test]
fn the_rules_hold_for_writers_with_looks_beside() {
    must_hold(WRITERS_BESIDE);
}

#[test]
fn the_rules_hold_for_strong_reads_with_looks_beside() {
    must_hold(READER_BESIDE);
}

/// Everything together; run by hand (a minute).
#[test]
#[ignore = "large"]
fn the_rules_hold_together() {
    must_hold(CALM);
    must_hold(Scenario { faults: true, ..WRITERS_BESIDE });
    must_hold(Scenario { beside: true, ..READER_BESIDE });
}

#[test]
fn broken_rules_of_writers_are_noticed() {
    use Broken::*;
    let writers = Scenario { reader: false, ..CALM };
    for broken in [
        BelieveCreated,
        BelieveRead,
        FloorOffByOne,
        LookBefore,
        ExistsIsAnothers,
        UnclearIsFailure,
        IgnoreWindow,
        PassUnknown,
        ForgetEarlierCreate,
        DeleteCovered,
    ] {
        must_fail(broken, writers);
    }
    must_fail(GuessWhenMissing, Scenario { window: 1, ..writers });
}

#[test]
fn broken_rules_of_readers_are_noticed() {
    use Broken::*;
    for broken in [ReaderBelievesEntries, ReaderBelievesEnd, FloorOffByOne] {
        must_fail(broken, Scenario { faults: false, deadlines: false, ..CALM });
    }
}

#[test]
fn broken_rules_of_looks_beside_are_noticed() {
    for broken in [Broken::BesideCovered, Broken::BesideSlow, Broken::NoRetention] {
        must_fail(broken, READER_BESIDE);
        must_fail(broken, WRITERS_BESIDE);
    }
}
