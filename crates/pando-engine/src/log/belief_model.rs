//! A model of the log, searched exhaustively: every order of events of two writers, a reader that asks for strong
//! consistency, a compactor and a collector, with creates that are lost, late, repeated or wrongly answered, and with
//! sleep between any two steps. Writers and reader run the production functions of [`super`].
//!
//! Checked in every state: nothing acknowledged is lost, nothing is applied twice, nothing reported as not written
//! is written, no strong read is stale, and nobody believes an entry that is not the log's. Each rule is also broken
//! on purpose, and the search must then find the fault: a rule that could go unnoticed would not be one.

use std::hash::{Hash, Hasher};
use std::time::Duration;

use super::*;

#[path = "belief_search.rs"]
mod search;

/// Numbers 1..=N of the log.
const N: usize = 3;
/// Entries: two of the first writer, one of the second.
const WRITES: [&[u8]; 2] = [&[1, 2], &[3]];

/// A rule broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    Nothing,
    /// A writer that created an entry asks no more.
    BelieveCreated,
    /// A writer believes what it read.
    BelieveRead,
    /// A reader believes the entries it found, and looks only about the end.
    ReaderBelievesEntries,
    /// A reader that found nothing believes in the end.
    ReaderBelievesEnd,
    /// The head is looked for before the request, not after.
    LookBefore,
    /// A floor at n is taken for a floor below n.
    FloorOffByOne,
    /// Looks beside count whatever the head covers.
    BesideCovered,
    /// Looks beside count however long it took.
    BesideSlow,
    /// "Exists" is taken for another's entry.
    ExistsIsAnothers,
    /// No answer is taken for failure, and the write is tried at the next number.
    UnclearIsFailure,
    /// A write that the window does not know is written again.
    GuessWhenMissing,
    /// The window is not asked: what was there before is another's.
    IgnoreWindow,
    /// After an unknown outcome the next write goes to the next number.
    PassUnknown,
    /// A create known not to be applied hides an earlier one that may be.
    ForgetEarlierCreate,
    /// The collector deletes what a head covers.
    DeleteCovered,
    /// Floors rise without waiting for the retention.
    NoRetention,
}

/// What may happen in a search.
#[derive(Clone, Copy, Debug)]
struct Scenario {
    broken: Broken,
    /// Ticks that an entry is kept after a head covers it.
    retention: u8,
    /// Entries that a root's window holds.
    window: u8,
    /// Writers send requests about entries and look for the head side by side, too.
    beside: bool,
    /// The reader does.
    reader_beside: bool,
    /// Answers are lost or wrong, creates late and repeated.
    faults: bool,
    /// Writers may give up at any time.
    deadlines: bool,
    /// Whether the reader takes part.
    reader: bool,
}

const CALM: Scenario = Scenario {
    broken: Broken::Nothing,
    retention: 1,
    window: 3,
    beside: false,
    reader_beside: false,
    faults: true,
    deadlines: true,
    reader: true,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct World {
    /// What lies at each number now; 0 for nothing.
    log: [u8; N + 1],
    /// What was first created at each number: the log as it is folded.
    truth: [u8; N + 1],
    sequence: u8,
    floor: u8,
    /// Age of the oldest head that covers each number, up to the retention.
    age: [u8; N + 1],
    /// Creates (of entry e at number n: bit (e-1)*N+n-1) that may come through at any time.
    late: u16,
    acked: u8,
    not_written: u8,
    writers: [WriterState; 2],
    reader: ReaderState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
struct WriterState {
    /// Which of its writes.
    index: u8,
    number: u8,
    attempt: Option<Small>,
    flight: Option<Flight>,
    /// What the head was when the attempt began, for [`Broken::LookBefore`].
    old_head: (u8, u8),
}

/// [`Attempt`] is not `Copy`; in the model it is kept as what was fed to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Small {
    maybe: bool,
    state: State,
}

impl Small {
    fn open(self, number: u8) -> Attempt {
        Attempt { number: number.into(), maybe: self.maybe, sending: false, state: self.state }
    }
    fn close(attempt: &Attempt) -> Self {
        assert!(!attempt.sending);
        Self { maybe: attempt.maybe, state: attempt.state }
    }
}

/// A request with a look beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Flight {
    answer: Option<Answer>,
    look: Option<(u8, u8)>,
    took: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Answer {
    Created(CreateAnswer),
    Read(Found),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
struct ReaderState {
    phase: Phase,
    /// Acknowledged before it began.
    owed: u8,
    /// Covered by the root it reads.
    base: u8,
    /// Entries read past it.
    found: [u8; N + 1],
    /// The number it reads next.
    at: u8,
    took: u8,
    look: Option<(u8, u8)>,
    beside: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
enum Phase {
    #[default]
    Idle,
    Reading,
    Looking,
    Done,
}

type Fault = &'static str;

impl World {
    fn new() -> Self {
        Self {
            log: [0; N + 1],
            truth: [0; N + 1],
            sequence: 0,
            floor: 0,
            age: [0; N + 1],
            late: 0,
            acked: 0,
            not_written: 0,
            writers: [WriterState { number: 1, ..WriterState::default() }; 2],
            reader: ReaderState::default(),
        }
    }

    fn head(&self) -> (u8, u8) {
        (self.sequence, self.floor)
    }

    fn hash(&self) -> u128 {
        let mut wide = Wide([0x9e37_79b9_7f4a_7c15, 0xc2b2_ae3d_27d4_eb4f]);
        Hash::hash(self, &mut wide);
        u128::from(wide.0[0]) << 64 | u128::from(wide.0[1])
    }

    /// A create arrives at the store. True if it was applied.
    fn create(&mut self, entry: u8, number: u8) -> Result<bool, Fault> {
        let n = number as usize;
        if self.log[n] != 0 {
            return Ok(false);
        }
        self.log[n] = entry;
        if self.truth[n] == 0 {
            if n > 1 && self.truth[n - 1] == 0 {
                return Err("the log has a gap");
            }
            if self.truth.contains(&entry) {
                return Err("an entry is in the log twice");
            }
            if self.not_written & bit(entry) != 0 {
                return Err("an entry reported as not written is in the log");
            }
            self.truth[n] = entry;
        }
        Ok(true)
    }

    fn tick(&mut self, scenario: &Scenario) {
        for n in 1..=self.sequence as usize {
            self.age[n] = (self.age[n] + 1).min(scenario.retention);
        }
        let cap = scenario.retention + 1;
        for writer in &mut self.writers {
            if let Some(flight) = &mut writer.flight {
                flight.took = (flight.took + 1).min(cap);
            }
        }
        if self.reader.beside && self.reader.phase == Phase::Reading {
            self.reader.took = (self.reader.took + 1).min(cap);
        }
    }

    /// All states that one step leads to.
    fn steps(&self, scenario: &Scenario, out: &mut Vec<(&'static str, Result<World, Fault>)>) {
        let mut step = |name, f: &dyn Fn(&mut World) -> Result<(), Fault>| {
            let mut next = *self;
            let result = f(&mut next).map(|()| next);
            if result != Ok(*self) {
                out.push((name, result));
            }
        };
        step("time passes", &|w| {
            w.tick(scenario);
            Ok(())
        });
        for end in self.sequence + 1..=N as u8 {
            if self.log[end as usize] == 0 {
                break;
            }
            step("a head is published", &|w| w.publish(end, scenario));
        }
        // What a head that only raises the floor does: the same root, nothing folded.
        step("the floor is raised", &|w| w.publish(w.sequence, scenario));
        let covered = scenario.broken == Broken::DeleteCovered;
        let published = HeadFacts {
            sequence: self.sequence.into(),
            floor: if covered { self.sequence } else { self.floor }.into(),
        };
        for n in 1..=N {
            if may_delete_entry(n as u64, published) {
                step("an entry is deleted", &|w| {
                    w.log[n] = 0;
                    Ok(())
                });
            }
        }
        for e in 1..=3u8 {
            for n in 1..=N as u8 {
                if self.late & late_bit(e, n) != 0 {
                    step("a late create comes through", &|w| w.create(e, n).map(|_| ()));
                }
            }
        }
        for i in 0..2 {
            self.writer_steps(i, scenario, &mut step);
        }
        if scenario.reader {
            self.reader_steps(scenario, &mut step);
        }
    }

    fn publish(&mut self, end: u8, scenario: &Scenario) -> Result<(), Fault> {
        for n in self.sequence as usize + 1..=end as usize {
            if self.log[n] != self.truth[n] {
                return Err("the compactor folds an entry that is not the log's");
            }
        }
        let seconds = |ticks: u8| Duration::from_secs(ticks.into());
        let retention = if scenario.broken == Broken::NoRetention { 0 } else { scenario.retention };
        let heads =
            (1..=self.sequence).map(|n| Aged { sequence: n.into(), age: seconds(self.age[n as usize]) });
        self.floor = next_floor(self.floor.into(), heads, seconds(retention)) as u8;
        self.sequence = end;
        Ok(())
    }
}

type Stepper<'a> = dyn FnMut(&'static str, &dyn Fn(&mut World) -> Result<(), Fault>) + 'a;

/// Writers.
impl World {
    fn writer_steps(&self, i: usize, scenario: &Scenario, step: &mut Stepper<'_>) {
        let writer = &self.writers[i];
        let Some(entry) = WRITES[i].get(writer.index as usize).copied() else { return };
        if writer.number as usize > N {
            return; // No more numbers in this small world.
        }
        let Some(small) = writer.attempt else {
            step("a write begins", &|w| {
                let attempt = Attempt::new(w.writers[i].number.into());
                w.writers[i].attempt = Some(Small::close(&attempt));
                if scenario.broken == Broken::LookBefore {
                    w.writers[i].old_head = w.head();
                }
                Ok(())
            });
            return;
        };
        let attempt = small.open(writer.number);
        if let Some(flight) = writer.flight {
            if flight.look.is_none() {
                step("the look beside is answered", &|w| {
                    let head = w.head();
                    w.land(i, scenario, |flight| flight.look = Some(head))
                });
            }
            if flight.answer.is_none() {
                self.request(i, entry, &attempt, scenario, step);
            }
            return;
        }
        if scenario.deadlines {
            step("a writer gives up", &|w| {
                w.feed(i, scenario, |attempt| {
                    attempt.give_up();
                })
            });
        }
        match attempt.action() {
            Action::Create | Action::Read => {
                self.request(i, entry, &attempt, scenario, step);
                if scenario.beside {
                    step("a request begins, with a look beside it", &|w| {
                        w.writers[i].flight = Some(Flight { answer: None, look: None, took: 0 });
                        Ok(())
                    });
                }
            }
            Action::Look => step("a writer looks for the head", &|w| {
                let head = w.seen_head(i, scenario);
                w.feed(i, scenario, |attempt| attempt.looked(head, Look::After))
            }),
            Action::AskWindow => {
                let n = writer.number;
                let held = n + scenario.window > self.sequence;
                let (name, answer) = match held {
                    false => ("the window does not know the number", Window::Missing),
                    true if self.truth[n as usize] == entry => ("the window knows its entry", Window::Own),
                    true => ("the window knows another entry", Window::Other),
                };
                let guess = match scenario.broken {
                    Broken::GuessWhenMissing => !held,
                    Broken::IgnoreWindow => true,
                    _ => false,
                };
                let answer = if guess { Window::Other } else { answer };
                step(name, &|w| w.feed(i, scenario, |attempt| attempt.window(answer)));
            }
            Action::Done(_) => unreachable!("a decided attempt is taken away"),
        }
    }

    /// The ways in which a create or a read can be answered.
    fn request(&self, i: usize, entry: u8, attempt: &Attempt, scenario: &Scenario, step: &mut Stepper<'_>) {
        let n = self.writers[i].number;
        if attempt.action() == Action::Read {
            step("a writer reads", &|w| {
                let found = match w.log[n as usize] {
                    0 => Found::Absent,
                    e if e == entry => Found::Own,
                    _ => Found::Other,
                };
                w.answer(i, scenario, Answer::Read(found))
            });
            return;
        }
        let remember = |w: &mut World| w.late |= if scenario.faults { late_bit(entry, n) } else { 0 };
        step("a create is answered", &|w| {
            remember(w);
            let created = if w.create(entry, n)? { CreateAnswer::Created } else { CreateAnswer::Exists };
            w.answer(i, scenario, Answer::Created(created))
        });
        if !scenario.faults {
            return;
        }
        step("a create is applied, its answer is lost", &|w| {
            remember(w);
            w.create(entry, n)?;
            w.answer(i, scenario, Answer::Created(CreateAnswer::Unclear))
        });
        step("a create is lost, or late", &|w| {
            remember(w);
            w.answer(i, scenario, Answer::Created(CreateAnswer::Unclear))
        });
        step("a create is answered with exists, wrongly", &|w| {
            w.answer(i, scenario, Answer::Created(CreateAnswer::Exists))
        });
        step("a create is refused", &|w| w.answer(i, scenario, Answer::Created(CreateAnswer::NotApplied)));
    }

    fn answer(&mut self, i: usize, scenario: &Scenario, answer: Answer) -> Result<(), Fault> {
        if self.writers[i].flight.is_some() {
            return self.land(i, scenario, |flight| flight.answer = Some(answer));
        }
        self.answered(i, scenario, answer, None)
    }

    /// One of two requests that fly side by side is answered; with the second the attempt is told of both.
    fn land(&mut self, i: usize, scenario: &Scenario, set: impl FnOnce(&mut Flight)) -> Result<(), Fault> {
        let Some(flight) = &mut self.writers[i].flight else { return Ok(()) };
        set(flight);
        let Flight { answer: Some(answer), look: Some(head), took } = *flight else { return Ok(()) };
        self.writers[i].flight = None;
        self.answered(i, scenario, answer, Some((head, took)))
    }

    fn answered(
        &mut self,
        i: usize,
        scenario: &Scenario,
        answer: Answer,
        beside: Option<((u8, u8), u8)>,
    ) -> Result<(), Fault> {
        use Broken::*;
        if scenario.broken == UnclearIsFailure && answer == Answer::Created(CreateAnswer::Unclear) {
            self.writers[i].attempt = None;
            self.writers[i].number += 1;
            return Ok(());
        }
        self.feed(i, scenario, |attempt| {
            match answer {
                Answer::Created(created) => {
                    attempt.sending();
                    attempt.created(created);
                    if scenario.broken == ForgetEarlierCreate && created == CreateAnswer::NotApplied {
                        attempt.maybe = false;
                    }
                    if scenario.broken == ExistsIsAnothers && created == CreateAnswer::Exists {
                        attempt.read(Found::Other);
                    }
                }
                Answer::Read(found) => attempt.read(found),
            }
            if let Some((head, took)) = beside {
                attempt.looked(facts(head, scenario), beside_look(took, scenario));
            }
            let by_create = matches!(answer, Answer::Created(_));
            let skip = match scenario.broken {
                BelieveCreated => by_create,
                BelieveRead => !by_create,
                _ => false,
            };
            if skip {
                attempt.looked(HeadFacts::default(), Look::After);
            }
        })
    }

    /// Feeds the attempt, and acts on its verdict.
    fn feed(&mut self, i: usize, scenario: &Scenario, f: impl FnOnce(&mut Attempt)) -> Result<(), Fault> {
        let writer = &mut self.writers[i];
        let entry = WRITES[i][writer.index as usize];
        let number = writer.number;
        let Some(mut attempt) = writer.attempt.map(|small| small.open(number)) else { return Ok(()) };
        f(&mut attempt);
        let Action::Done(verdict) = attempt.action() else {
            writer.attempt = Some(Small::close(&attempt));
            return Ok(());
        };
        writer.attempt = None;
        writer.old_head = (0, 0);
        match verdict {
            Verdict::Written => {
                self.acked |= bit(entry);
                (writer.index, writer.number) = (writer.index + 1, number + 1);
                if self.truth[number as usize] != entry {
                    return Err("an acknowledged entry is not in the log");
                }
            }
            Verdict::Taken => {
                writer.number += 1;
                if [0, entry].contains(&self.truth[number as usize]) {
                    return Err("a writer passes a number that is its own or nobody's");
                }
            }
            Verdict::Passed { sequence } => writer.number = sequence as u8 + 1,
            Verdict::NotWritten => {
                self.not_written |= bit(entry);
                writer.index += 1;
                if self.truth.contains(&entry) {
                    return Err("an entry reported as not written is in the log");
                }
            }
            Verdict::Unknown => {
                writer.index += 1;
                if scenario.broken == Broken::PassUnknown {
                    writer.number += 1;
                }
            }
        }
        Ok(())
    }

    fn seen_head(&self, i: usize, scenario: &Scenario) -> HeadFacts {
        let head = if scenario.broken == Broken::LookBefore { self.writers[i].old_head } else { self.head() };
        facts(head, scenario)
    }
}

/// The reader.
impl World {
    fn reader_steps(&self, scenario: &Scenario, step: &mut Stepper<'_>) {
        match self.reader.phase {
            Phase::Idle => {
                for beside in [false, true] {
                    if !beside || scenario.reader_beside {
                        step("a strong read begins", &|w| {
                            w.reader = ReaderState {
                                phase: Phase::Reading,
                                owed: w.acked,
                                at: 1,
                                beside,
                                ..ReaderState::default()
                            };
                            Ok(())
                        });
                    }
                }
            }
            Phase::Reading => {
                if self.reader.beside && self.reader.look.is_none() {
                    step("the reader's look beside is answered", &|w| {
                        w.reader.look = Some(w.head());
                        Ok(())
                    });
                }
                step("the reader reads on", &|w| w.read_on(scenario));
            }
            Phase::Looking => step("the reader looks for the head", &|w| {
                let head = w.head();
                w.conclude(scenario, head, Look::After)
            }),
            Phase::Done => {}
        }
    }

    fn read_on(&mut self, scenario: &Scenario) -> Result<(), Fault> {
        let at = self.reader.at as usize;
        let entry = self.log.get(at).copied().unwrap_or(0);
        if entry != 0 {
            self.reader.found[at] = entry;
            self.reader.at += 1;
            return Ok(());
        }
        let nothing_found = self.reader.at == self.reader.base + 1;
        if scenario.broken == Broken::ReaderBelievesEnd && nothing_found {
            return self.read_is_done();
        }
        match self.reader.look {
            Some(head) => {
                let look = beside_look(self.reader.took, scenario);
                self.conclude(scenario, head, look)
            }
            // The look beside comes late: then it comes after.
            None => {
                self.reader.phase = Phase::Looking;
                Ok(())
            }
        }
    }

    fn conclude(&mut self, scenario: &Scenario, head: (u8, u8), look: Look) -> Result<(), Fault> {
        let lowest = match scenario.broken {
            Broken::ReaderBelievesEntries => self.reader.at,
            _ => self.reader.base + 1,
        };
        match believe(lowest.into(), facts(head, scenario), look) {
            Belief::Believed => self.read_is_done(),
            Belief::LookAgain => {
                self.reader.phase = Phase::Looking;
                Ok(())
            }
            Belief::Passed { head } => {
                let base = head.sequence as u8;
                self.reader = ReaderState {
                    phase: Phase::Reading,
                    owed: self.reader.owed,
                    base,
                    at: base + 1,
                    beside: self.reader.beside,
                    ..ReaderState::default()
                };
                Ok(())
            }
        }
    }

    fn read_is_done(&mut self) -> Result<(), Fault> {
        let reader = self.reader;
        let mut seen = 0;
        for n in 1..reader.at as usize {
            let covered = n <= reader.base as usize;
            let entry = if covered { self.truth[n] } else { reader.found[n] };
            if entry != self.truth[n] {
                return Err("a read believes an entry that is not the log's");
            }
            seen |= bit(entry);
        }
        if reader.owed & !seen != 0 {
            return Err("a strong read is stale");
        }
        self.reader = ReaderState { phase: Phase::Done, ..ReaderState::default() };
        Ok(())
    }
}

fn bit(entry: u8) -> u8 {
    1 << (entry - 1)
}

fn late_bit(entry: u8, number: u8) -> u16 {
    1 << ((entry - 1) as usize * N + number as usize - 1)
}

fn facts((sequence, floor): (u8, u8), scenario: &Scenario) -> HeadFacts {
    let floor = if scenario.broken == Broken::FloorOffByOne { floor.saturating_sub(1) } else { floor };
    HeadFacts { sequence: sequence.into(), floor: floor.into() }
}

fn beside_look(took: u8, scenario: &Scenario) -> Look {
    let seconds = |ticks: u8| Duration::from_secs(ticks.into());
    let took = if scenario.broken == Broken::BesideSlow { 0 } else { took };
    match scenario.broken {
        // As if time alone were enough: within it, the look counts as one that came after.
        Broken::BesideCovered if seconds(took) < seconds(scenario.retention) / 2 => Look::After,
        _ => Look::Beside { took: seconds(took), retention: seconds(scenario.retention) },
    }
}

/// 128 bits from a state: two lanes of multiply and rotate. Quick, because every step of the search needs one.
struct Wide([u64; 2]);

impl Hasher for Wide {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }
    fn write_u8(&mut self, byte: u8) {
        self.write_u64(byte.into());
    }
    fn write_u64(&mut self, word: u64) {
        self.0[0] = (self.0[0] ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(29);
        self.0[1] = (self.0[1] ^ word).wrapping_mul(0xc4ce_b9fe_1a85_ec53).rotate_left(37);
    }
    fn finish(&self) -> u64 {
        self.0[0] ^ self.0[1]
    }
}

/// Takes the low half of a hash as its hash.
#[derive(Default)]
struct Low(u64);

impl Hasher for Low {
    fn write(&mut self, _: &[u8]) {
        unreachable!("only states are looked up")
    }
    fn write_u128(&mut self, hash: u128) {
        self.0 = hash as u64;
    }
    fn finish(&self) -> u64 {
        self.0
    }
}
