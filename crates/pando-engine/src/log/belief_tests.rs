use super::*;

const R: Duration = Duration::from_secs(3600);

fn head(sequence: u64, floor: u64) -> HeadFacts {
    HeadFacts { sequence, floor }
}

fn beside(seconds: u64) -> Look {
    Look::Beside { took: Duration::from_secs(seconds), retention: R }
}

#[test]
fn belief_needs_a_floor_below() {
    for look in [Look::After, beside(1)] {
        assert_eq!(believe(1, HeadFacts::default(), look), Belief::Believed);
        assert_eq!(believe(8, head(7, 5), look), Belief::Believed);
        assert_eq!(believe(5, head(7, 5), look), Belief::Passed { head: head(7, 5) });
        assert_eq!(believe(1, head(7, 5), look), Belief::Passed { head: head(7, 5) });
    }
}

#[test]
fn a_look_beside_needs_little_time_and_a_head_that_does_not_cover() {
    assert_eq!(believe(6, head(7, 5), Look::After), Belief::Believed);
    assert_eq!(believe(6, head(7, 5), beside(1)), Belief::LookAgain);
    assert_eq!(believe(7, head(7, 5), beside(0)), Belief::LookAgain);
    assert_eq!(believe(8, head(7, 5), beside(1799)), Belief::Believed);
    assert_eq!(believe(8, head(7, 5), beside(1800)), Belief::LookAgain);
    let no_retention = Look::Beside { took: Duration::ZERO, retention: Duration::ZERO };
    assert_eq!(believe(8, head(7, 5), no_retention), Belief::LookAgain);
}

#[test]
fn the_plain_way_is_a_create_and_a_look() {
    let mut attempt = Attempt::new(4);
    assert_eq!(attempt.action(), Action::Create);
    attempt.sending();
    attempt.created(CreateAnswer::Created);
    assert_eq!(attempt.action(), Action::Look);
    attempt.looked(head(3, 0), beside(1));
    assert_eq!(attempt.action(), Action::Done(Verdict::Written));
    assert_eq!(attempt.give_up(), Verdict::Written, "a deadline after the fact changes nothing");
}

#[test]
fn unclear_and_exists_are_read() {
    for answer in [CreateAnswer::Unclear, CreateAnswer::Exists] {
        for (found, verdict) in [(Found::Own, Verdict::Written), (Found::Other, Verdict::Taken)] {
            let mut attempt = Attempt::new(4);
            attempt.sending();
            attempt.created(answer);
            attempt.looked(head(3, 0), Look::After);
            assert_eq!(attempt.action(), Action::Read, "a look that came too early counts for nothing");
            attempt.read(found);
            attempt.looked(head(3, 0), Look::After);
            assert_eq!(attempt.action(), Action::Done(verdict));
        }
        let mut attempt = Attempt::new(4);
        attempt.sending();
        attempt.created(answer);
        attempt.read(Found::Absent);
        assert_eq!(attempt.action(), Action::Create, "the same bytes at the same number");
        assert_eq!(attempt.give_up(), Verdict::Unknown);
    }
}

#[test]
fn past_the_floor_the_window_decides() {
    let passed = |found| {
        let mut attempt = Attempt::new(4);
        attempt.sending();
        attempt.created(CreateAnswer::Unclear);
        attempt.read(found);
        attempt.looked(head(9, 4), Look::After);
        assert_eq!(attempt.action(), Action::AskWindow);
        attempt
    };
    for found in [Found::Own, Found::Other] {
        for (answer, verdict) in [
            (Window::Own, Verdict::Written),
            (Window::Other, Verdict::Passed { sequence: 9 }),
            (Window::Missing, Verdict::Unknown),
        ] {
            let mut attempt = passed(found);
            attempt.window(answer);
            assert_eq!(attempt.action(), Action::Done(verdict), "whatever lies there now");
        }
        assert_eq!(passed(found).give_up(), Verdict::Unknown);
    }
}

#[test]
fn only_what_cannot_have_happened_is_reported_as_not_written() {
    let mut attempt = Attempt::new(1);
    assert_eq!(attempt.clone().give_up(), Verdict::NotWritten);
    attempt.sending();
    assert_eq!(attempt.clone().give_up(), Verdict::Unknown, "it is on its way");
    attempt.created(CreateAnswer::NotApplied);
    assert_eq!(attempt.action(), Action::Create);
    assert_eq!(attempt.clone().give_up(), Verdict::NotWritten);
    attempt.sending();
    attempt.created(CreateAnswer::Unclear);
    attempt.read(Found::Absent);
    attempt.sending();
    attempt.created(CreateAnswer::NotApplied);
    assert_eq!(attempt.give_up(), Verdict::Unknown, "the first create may still come through");
}

#[test]
fn windows_are_asked_by_number_and_nonce() {
    let window = [(3u64, "a"), (4, "b"), (6, "c")];
    let look = |number, own| Window::look(window.iter().map(|(n, nonce)| (*n, nonce)), number, &own);
    assert_eq!(look(4, "b"), Window::Own);
    assert_eq!(look(4, "a"), Window::Other, "our nonce at another number is another attempt");
    assert_eq!(look(5, "b"), Window::Missing);
    assert_eq!(look(2, "b"), Window::Missing);
}

#[test]
fn floors_wait_for_the_retention_and_never_sink() {
    let aged = |sequence, seconds| Aged { sequence, age: Duration::from_secs(seconds) };
    assert_eq!(next_floor(0, [], R), 0);
    assert_eq!(next_floor(5, [], R), 5);
    assert_eq!(next_floor(0, [aged(7, 3599)], R), 0);
    assert_eq!(next_floor(0, [aged(7, 3600)], R), 7);
    assert_eq!(next_floor(2, [aged(9, 10), aged(7, 3600), aged(4, 9000)], R), 7);
    assert_eq!(next_floor(8, [aged(7, 3600)], R), 8);
}

#[test]
fn the_collector_keeps_what_is_above_the_floor() {
    assert!(!may_delete_entry(1, HeadFacts::default()));
    assert!(may_delete_entry(5, head(9, 5)) && !may_delete_entry(6, head(9, 5)));
    assert!(may_delete_orphan(1, 4, head(9, 5)) && !may_delete_orphan(2, 4, head(9, 5)));
    assert!(!may_delete_orphan(u64::MAX - 1, 4, head(u64::MAX, u64::MAX)));
}
