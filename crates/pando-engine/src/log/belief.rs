//! What may be concluded about the log: DESIGN section 4, "an unclear answer" and "believing the log", as pure
//! functions. No I/O and no clock: the writer and the reader do the requests and feed the answers in; the model in the
//! tests does the same with every order of events.
//!
//! Two things make a plain create-if-absent insufficient. Its answer can be lost or wrong. And entries at or below
//! the floor of a published head are deleted, so that whoever slept through the log's retention may create number n a
//! second time (nobody will ever read that entry), or find it absent although it was there. What protects from the
//! second is one more look: **what was seen of number n counts only if the newest head, looked for after it, has a
//! floor below n**. Until then n cannot have been deleted, so there was only ever one entry n.
//!
//! The look may run *beside* the request instead of after it, which saves a round trip, if both together took less
//! than half the log's retention **and that head does not cover n**. Time alone is not enough: a head that covers n
//! may be almost as old as the retention, the next floor may take n away between the two answers, and a sleeper may
//! put another entry there. If the head does not cover n, a head that does has yet to be published and to grow as old
//! as the retention before n can go.

use std::time::Duration;

/// What a head says about the log. The default stands for "no head yet".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HeadFacts {
    /// The last entry that its root covers.
    pub sequence: u64,
    /// Entries at or below may be deleted. At most `sequence`.
    pub floor: u64,
}

/// When the newest head was looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Look {
    /// The search began after the request about the entry was answered.
    After,
    /// They overlapped.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "for stores where a round trip is dear; the model covers it")
    )]
    Beside {
        /// From the start of the first to the end of the last, on a clock that counts suspend.
        took: Duration,
        /// How long the collection keeps log entries.
        retention: Duration,
    },
}

/// Whether what was seen of an entry counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Belief {
    /// It counts: the entry is the only one that ever had this number, or there was none.
    Believed,
    /// Not proved: look for the newest head once more, now after the fact.
    LookAgain,
    /// The log moved past it: whatever is or is not there proves nothing. A reader goes on from the root of `head`; a
    /// writer asks that root's window.
    Passed {
        /// The head that says so.
        head: HeadFacts,
    },
}

/// Whether what was seen of entry `number` (created, found, or found absent) counts.
///
/// For a run of entries and the absence that ends it, `number` is the lowest of them, and `Look::After` means after
/// the last answer: what holds for the lowest holds for all.
pub fn believe(number: u64, head: HeadFacts, look: Look) -> Belief {
    if head.floor >= number {
        // Floors only rise, so this is true whenever it was seen.
        return Belief::Passed { head };
    }
    match look {
        Look::After => Belief::Believed,
        Look::Beside { took, retention } if head.sequence < number && took < retention / 2 => {
            Belief::Believed
        }
        Look::Beside { .. } => Belief::LookAgain,
    }
}

/// A published head, as its age is known when the next head is about to be published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aged {
    /// The last entry that its root covers.
    pub sequence: u64,
    /// How long it has been published at least, by the store's own clock.
    pub age: Duration,
}

/// The log floor that the next head states: the last entry of a head that is at least as old as the log's retention. Of
/// the heads looked at, the newest that is old enough counts; floors never sink. No published head at all is fine: then
/// the floor stays.
pub fn next_floor(floor: u64, heads: impl IntoIterator<Item = Aged>, retention: Duration) -> u64 {
    let old = heads.into_iter().filter(|head| head.age >= retention).map(|head| head.sequence);
    old.fold(floor, u64::max)
}

/// Whether the collector may delete entry `number`: only entries at or below the floor of a head that is published.
pub fn may_delete_entry(number: u64, published: HeadFacts) -> bool {
    number <= published.floor
}

/// Whether the collector may delete a body that was written when the log's end was `aim` and that no entry is known to
/// hold: no entry that may point to it is left above the floor, nor can one come.
pub fn may_delete_orphan(aim: u64, reach: u64, published: HeadFacts) -> bool {
    aim.checked_add(reach).is_some_and(|last| last <= published.floor)
}

/// The answer to a create.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CreateAnswer {
    /// It is ours.
    Created,
    /// Something is said to be there; it may be our own, or nothing (409).
    Exists,
    /// No answer, or one that proves nothing.
    Unclear,
    /// This request was and will not be applied. Says nothing about earlier ones.
    NotApplied,
}

/// What reading the entry found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Found {
    /// An entry with our nonce.
    Own,
    /// Another's.
    Other,
    /// Nothing.
    Absent,
}

/// What the write window of a root says of a number that the root covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Window {
    /// Our nonce.
    Own,
    /// Another nonce.
    Other,
    /// The window does not hold the number: it is older, or was stepped over.
    Missing,
}

impl Window {
    /// Looks a number up in a window: its nonces in order of sequence.
    pub fn look<'a, N: PartialEq + 'a>(
        window: impl IntoIterator<Item = (u64, &'a N)>,
        number: u64,
        own: &N,
    ) -> Self {
        match window.into_iter().find(|(sequence, _)| *sequence == number) {
            Some((_, nonce)) if nonce == own => Self::Own,
            Some(_) => Self::Other,
            None => Self::Missing,
        }
    }
}

/// What the writer has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Send the create, with the same bytes each time, after [`Attempt::sending`].
    Create,
    /// Read the entry and compare nonces.
    Read,
    /// Look for the newest head.
    Look,
    /// Ask the window of the newest root.
    AskWindow,
    /// Nothing: it is decided.
    Done(Verdict),
}

/// What became of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Our entry is in the log at this number, for good.
    Written,
    /// Another's entry is at this number: apply it, validate again, try the next number.
    Taken,
    /// Another's entry was at this number and the log moved past it: open the newest root, which covers at least
    /// `sequence`, and write again at the log's end.
    Passed {
        /// What the newest head covered.
        sequence: u64,
    },
    /// Nothing was written, and nothing will be.
    NotWritten,
    /// The caller is told that the outcome is unknown. Not written again: that could apply it twice.
    Unknown,
}

/// One entry on its way to one number of the log.
///
/// Feed it the answers in the order of their coming; an answer that it did not ask for changes nothing. A writer that
/// gave up with [`Verdict::Unknown`] begins its next entry at the *same* number: it finds out who is there before it
/// passes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Attempt {
    number: u64,
    /// An earlier create may have been applied, or may yet be.
    maybe: bool,
    /// A create is on its way.
    sending: bool,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    Create,
    Read,
    /// An entry was seen, ours or not; does it count?
    Look {
        own: bool,
    },
    Window(HeadFacts),
    Done(Verdict),
}

impl Attempt {
    /// An entry for `number`, whose predecessor the writer believes in.
    pub fn new(number: u64) -> Self {
        Self { number, maybe: false, sending: false, state: State::Create }
    }

    /// What to do next.
    pub fn action(&self) -> Action {
        match self.state {
            State::Create => Action::Create,
            State::Read => Action::Read,
            State::Look { .. } => Action::Look,
            State::Window(_) => Action::AskWindow,
            State::Done(verdict) => Action::Done(verdict),
        }
    }

    /// A create is about to be sent.
    pub fn sending(&mut self) {
        self.sending = true;
    }

    /// The create was answered. After [`CreateAnswer::NotApplied`] the next action is to create again, or to give up.
    pub fn created(&mut self, answer: CreateAnswer) {
        self.sending = false;
        if answer != CreateAnswer::NotApplied {
            self.maybe = true;
        }
        if self.state != State::Create {
            return;
        }
        self.state = match answer {
            CreateAnswer::Created => State::Look { own: true },
            CreateAnswer::Exists | CreateAnswer::Unclear => State::Read,
            CreateAnswer::NotApplied => State::Create,
        };
    }

    /// The entry was read.
    ///
    /// Nothing there: the same bytes at the same number once more, without a look. Should an earlier create come
    /// through after all, it is the same entry; should the number be gone, the look after the next create says so.
    pub fn read(&mut self, found: Found) {
        if self.state == State::Read {
            self.state = match found {
                Found::Own => State::Look { own: true },
                Found::Other => State::Look { own: false },
                Found::Absent => State::Create,
            };
        }
    }

    /// The newest head was found. `look` is in relation to the create, or the read, that was answered last.
    pub fn looked(&mut self, head: HeadFacts, look: Look) {
        let State::Look { own } = self.state else { return };
        self.state = match believe(self.number, head, look) {
            Belief::Believed if own => State::Done(Verdict::Written),
            Belief::Believed => State::Done(Verdict::Taken),
            Belief::LookAgain => State::Look { own },
            Belief::Passed { head } => State::Window(head),
        };
    }

    /// The window of the newest root, which covers the number, was asked.
    pub fn window(&mut self, answer: Window) {
        let State::Window(head) = self.state else { return };
        self.state = State::Done(match answer {
            Window::Own => Verdict::Written,
            Window::Other => Verdict::Passed { sequence: head.sequence },
            // Whether the entry that was folded here was ours, nobody can tell any more.
            Window::Missing => Verdict::Unknown,
        });
    }

    /// The deadline has come. Decides what is not decided yet.
    pub fn give_up(&mut self) -> Verdict {
        if let State::Done(verdict) = self.state {
            return verdict;
        }
        let verdict = self.undecided();
        self.state = State::Done(verdict);
        verdict
    }

    fn undecided(&self) -> Verdict {
        if self.maybe || self.sending { Verdict::Unknown } else { Verdict::NotWritten }
    }
}

#[cfg(test)]
#[path = "belief_model.rs"]
mod model;
#[cfg(test)]
#[path = "belief_tests.rs"]
mod tests;
