use std::fmt::Write as _;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

/// All transitions, one per line. The test below prints the lines that it expects.
const TRANSITIONS: &str = include_str!("transitions.txt");

const START: Moment = Moment::from_micros(0);

fn at(seconds: u64) -> Moment {
    START + Duration::from_secs(seconds)
}

/// A hold of a lease of 10 s, at second 5.
const FACTS: Facts = Facts {
    now: Moment::from_micros(5_000_000),
    valid_until: Moment::from_micros(9_000_000),
    may_last_until: Moment::from_micros(10_000_000),
    is_leased: true,
};

fn state(phase: Phase, guards: u32) -> HoldState {
    HoldState { phase, guards, doubt: None }
}

/// The state after `state` in the table. A new phase does not compile until it is listed here.
fn following_state(previous: Option<HoldState>) -> Option<HoldState> {
    let Some(HoldState { phase, guards, .. }) = previous else {
        return Some(state(Phase::Held { confirmed: 1 }, 1));
    };
    Some(match phase {
        Phase::Held { confirmed: 1 } => state(Phase::Held { confirmed: 2 }, 2),
        Phase::Held { .. } if guards == 2 => state(Phase::Held { confirmed: 2 }, 1),
        Phase::Held { .. } => state(Phase::Releasing, 0),
        Phase::Releasing => state(Phase::InDoubt { since: at(4) }, 0),
        Phase::InDoubt { .. } => state(Phase::Offered, 0),
        Phase::Offered => state(Phase::HandedOver, 0),
        Phase::HandedOver => state(Phase::Left, 0),
        Phase::Left => state(Phase::Lost(Loss::LocalEnd), 1),
        Phase::Lost(Loss::LocalEnd) if guards == 1 => state(Phase::Lost(Loss::LocalEnd), 0),
        Phase::Lost(Loss::LocalEnd) => state(Phase::Lost(Loss::Reported), 1),
        Phase::Lost(Loss::Reported) if guards == 1 => state(Phase::Lost(Loss::Reported), 0),
        Phase::Lost(Loss::Reported) => state(Phase::Gone, 0),
        Phase::Gone => state(Phase::Released, 0),
        Phase::Released => return None,
    })
}

/// The event after `event` in the table. A new event does not compile until it is listed here.
fn following_event(previous: Option<Event>) -> Option<Event> {
    let Some(previous) = previous else { return Some(Event::ReentryConfirmed { target: 2 }) };
    Some(match previous {
        Event::ReentryConfirmed { .. } => Event::ReentryInDoubt { target: 2 },
        Event::ReentryInDoubt { .. } => Event::GuardEnded,
        Event::GuardEnded => Event::GuardDetached,
        Event::GuardDetached => Event::UnlockDelayed,
        Event::UnlockDelayed => Event::HandOverOffered,
        Event::HandOverOffered => Event::HandOverAccepted,
        Event::HandOverAccepted => Event::LossFound(Loss::LocalEnd),
        Event::LossFound(Loss::LocalEnd) => Event::LossFound(Loss::Reported),
        Event::LossFound(Loss::Reported) => Event::ReleaseDue,
        Event::ReleaseDue => Event::ReleaseConfirmed { target: 1 },
        Event::ReleaseConfirmed { target: 1.. } => Event::ReleaseConfirmed { target: 0 },
        Event::ReleaseConfirmed { target: 0 } => Event::ReleaseNotHeld { target: 1 },
        Event::ReleaseNotHeld { target: 1.. } => Event::ReleaseNotHeld { target: 0 },
        Event::ReleaseNotHeld { target: 0 } => Event::ReleaseInDoubt { target: 1, sent: at(5) },
        Event::ReleaseInDoubt { target: 1.., .. } => Event::ReleaseInDoubt { target: 0, sent: at(5) },
        Event::ReleaseInDoubt { target: 0, .. } => Event::ReleaseFailed { target: 1, is_refused: false },
        Event::ReleaseFailed { target: 1.., .. } => Event::ReleaseFailed { target: 0, is_refused: false },
        Event::ReleaseFailed { is_refused: false, .. } => {
            Event::ReleaseFailed { target: 0, is_refused: true }
        }
        Event::ReleaseFailed { .. } => Event::DelayedUnlockDue { until: at(8) },
        Event::DelayedUnlockDue { .. } => Event::DelayedUnlockNotHeld,
        Event::DelayedUnlockNotHeld => Event::DelayedUnlockRefused,
        Event::DelayedUnlockRefused => return None,
    })
}

fn states() -> impl Iterator<Item = HoldState> {
    std::iter::successors(following_state(None), |state| following_state(Some(*state)))
}

fn events() -> impl Iterator<Item = Event> {
    std::iter::successors(following_event(None), |event| following_event(Some(*event)))
}

fn describe_state(HoldState { phase, guards, .. }: HoldState) -> String {
    match phase {
        Phase::Held { confirmed } => format!("Held {guards} of {confirmed}"),
        Phase::InDoubt { since } => format!("InDoubt since {}", since.as_micros() / 1_000_000),
        Phase::Lost(loss) => format!("Lost({loss:?}) {guards}"),
        phase => format!("{phase:?}"),
    }
}

fn describe_event(event: Event) -> String {
    match event {
        Event::ReleaseInDoubt { target, .. } => format!("ReleaseInDoubt {target}"),
        Event::ReleaseFailed { target, is_refused: true } => format!("ReleaseRefused {target}"),
        Event::ReleaseFailed { target, .. } => format!("ReleaseFailed {target}"),
        Event::ReentryConfirmed { target } => format!("ReentryConfirmed {target}"),
        Event::ReentryInDoubt { target } => format!("ReentryInDoubt {target}"),
        Event::ReleaseConfirmed { target } => format!("ReleaseConfirmed {target}"),
        Event::ReleaseNotHeld { target } => format!("ReleaseNotHeld {target}"),
        Event::DelayedUnlockDue { .. } => "DelayedUnlockDue".to_owned(),
        event => format!("{event:?}"),
    }
}

fn describe_action(action: Action) -> String {
    match action {
        Action::None => "-".to_owned(),
        Action::Send { target } => format!("Send {target}"),
        Action::Finish { report, undo: None } => format!("report {report:?}"),
        Action::Finish { report, undo: Some(_) } => format!("report {report:?}, undo"),
        action => format!("{action:?}"),
    }
}

/// The transitions of one event: the phases with the same outcome in one line.
fn describe_transitions(event: Event) -> String {
    let mut outcomes: Vec<(String, Vec<String>)> = Vec::new();
    for from in states() {
        let (to, action) = from.next(event, &FACTS);
        let to = if to == from { "same".to_owned() } else { describe_state(to) };
        let outcome = format!("{to:16} | {}", describe_action(action));
        match outcomes.iter_mut().find(|(known, _)| *known == outcome) {
            Some((_, phases)) => phases.push(describe_state(from)),
            None => outcomes.push((outcome, vec![describe_state(from)])),
        }
    }
    let event = describe_event(event);
    outcomes.iter().fold(String::new(), |mut lines, (outcome, phases)| {
        writeln!(lines, "{event:20} | {outcome:37} | from {}", phases.join(", ")).expect("a string");
        lines
    })
}

#[test]
fn every_event_has_a_transition_in_every_phase() {
    let table: String = events().map(describe_transitions).collect();
    let differs = |(line, expected): &(&str, &str)| line != expected;
    if let Some((line, expected)) = table.lines().zip(TRANSITIONS.lines()).find(differs) {
        panic!("expected: {expected}\n     got: {line}\n\nall:\n{table}");
    }
    assert_eq!(table.lines().count(), TRANSITIONS.lines().count(), "lines are missing:\n{table}");
}

#[test]
fn only_a_resend_can_find_the_effect_of_the_first_send() {
    let not_held = Event::ReleaseNotHeld { target: 0 };
    let report = |phase, now| match state(phase, 0).next(not_held, &Facts { now, ..FACTS }) {
        (state, Action::Finish { report, .. }) => (state.phase, report),
        (_, action) => panic!("{action:?}"),
    };
    let in_doubt = Phase::InDoubt { since: at(4) };
    assert_eq!(report(Phase::Releasing, at(5)), (Phase::Gone, Report::Gone));
    assert_eq!(report(Phase::Releasing, at(11)), (Phase::Gone, Report::Gone));
    assert_eq!(report(in_doubt, at(5)), (Phase::Released, Report::Done));
    // The lease had ended when the reply arrived: released, or expired.
    assert_eq!(report(in_doubt, at(9)), (Phase::Released, Report::InDoubt));
}

#[test]
fn a_reentry_of_an_expired_hold_adds_no_guard() {
    let (state, action) = state(Phase::Held { confirmed: 1 }, 1)
        .next(Event::ReentryConfirmed { target: 2 }, &Facts { now: at(9), ..FACTS });
    assert_eq!((state.guards, state.phase), (1, Phase::Held { confirmed: 2 }));
    assert_eq!(action, Action::Finish { report: Report::Expired, undo: None });
}

#[test]
fn a_guard_that_ends_during_a_reentry_stays_ended() {
    // Two guards, and a reentry for a third is under way when one of them ends.
    let (one_ended, _) = state(Phase::Held { confirmed: 2 }, 2).next(Event::GuardEnded, &FACTS);
    let (reentered, action) = one_ended.next(Event::ReentryConfirmed { target: 3 }, &FACTS);
    assert_eq!(action, Action::Allow);
    assert_eq!((reentered.guards, reentered.phase), (2, Phase::Held { confirmed: 3 }));
    assert_eq!(reentered.next(Event::ReleaseDue, &FACTS).1, Action::Send { target: 2 });
}

#[test]
fn a_request_in_doubt_prevents_a_hand_over_and_is_undone_at_the_end() {
    let doubt = Doubt::new(1, at(4), Duration::from_secs(10));
    let held = HoldState::granted(Some(doubt));
    assert_eq!(held.next(Event::HandOverOffered, &FACTS), (held, Action::Refuse));
    let (releasing, _) = held.next(Event::GuardEnded, &FACTS);
    let (released, action) = releasing.next(Event::ReleaseConfirmed { target: 0 }, &FACTS);
    assert_eq!(action, Action::Finish { report: Report::Done, undo: Some(doubt) });
    assert_eq!(
        released.next(Event::ReleaseDue, &FACTS).1,
        Action::Finish { report: Report::Done, undo: None }
    );
}

#[test]
fn an_undo_of_permits_without_owners_ends_when_the_store_may_have_forgotten_them() {
    let doubt = Doubt::new(1, START, Duration::from_secs(2));
    let releasing = HoldState { phase: Phase::Releasing, guards: 0, doubt: Some(doubt) };
    let undo = |is_leased, now| match releasing
        .next(Event::ReleaseConfirmed { target: 0 }, &Facts { now, is_leased, ..FACTS })
    {
        (_, Action::Finish { undo, .. }) => undo,
        (_, action) => panic!("{action:?}"),
    };
    assert_eq!([undo(false, at(3)), undo(false, at(4)), undo(true, at(4))], [Some(doubt), None, Some(doubt)]);
}

#[test]
fn an_expired_hold_is_undone_until_the_store_cannot_have_it() {
    let lost = |loss| state(Phase::Lost(loss), 0).next(Event::ReleaseDue, &FACTS).1;
    let undo = Some(Doubt::of_existing_hold(FACTS.may_last_until));
    assert_eq!(lost(Loss::LocalEnd), Action::Finish { report: Report::Lost, undo });
    assert_eq!(lost(Loss::Reported), Action::Finish { report: Report::Lost, undo: None });
}

#[test]
fn a_delayed_unlock_ends_at_its_time_or_with_the_hold() {
    let due = |now| {
        state(Phase::Left, 0).next(Event::DelayedUnlockDue { until: at(20) }, &Facts { now, ..FACTS }).1
    };
    assert_eq!(due(at(9)), Action::Send { target: 1 });
    assert_eq!(due(at(10)), Action::Finish { report: Report::Expired, undo: None });
    let undo = Some(Doubt::of_existing_hold(FACTS.may_last_until));
    let is_leased = FACTS.is_leased;
    assert!(is_leased);
    assert_eq!(due(at(20)), Action::Finish { report: Report::InDoubt, undo });
}

#[test]
fn only_a_refused_delayed_unlock_lets_a_release_end_what_the_last_guard_left() {
    // The release of the first of two guards has no reply yet.
    let (one_ended, _) = state(Phase::Held { confirmed: 2 }, 2).next(Event::GuardEnded, &FACTS);
    for last_ends in [Event::GuardDetached, Event::UnlockDelayed] {
        let (left, _) = one_ended.next(last_ends, &FACTS);
        let done = Action::Finish { report: Report::Done, undo: None };
        assert_eq!(left.next(Event::ReleaseDue, &FACTS), (left, done));
        let (refused, _) = left.next(Event::DelayedUnlockRefused, &FACTS);
        assert_eq!(refused.next(Event::ReleaseDue, &FACTS).1, Action::Send { target: 0 });
    }
}

#[test]
fn an_unanswered_release_is_sent_again_while_the_hold_or_the_request_is_known() {
    let in_doubt = state(Phase::InDoubt { since: at(4) }, 0);
    assert_eq!(in_doubt.release_end(&FACTS), FACTS.may_last_until);
    let permits = Facts { is_leased: false, may_last_until: Moment::NEVER, ..FACTS };
    assert_eq!(in_doubt.release_end(&permits), at(4) + REPEATED_FOR);
    assert_eq!(state(Phase::Releasing, 0).release_end(&permits), Moment::NEVER);
}

proptest! {
    /// Whatever happens, a hold is sent no release after it was handed over or released, and no guard uses a hold that
    /// has ended.
    #[test]
    fn a_hold_that_has_ended_stays_ended(steps in proptest::collection::vec(0..22_usize, 1..40)) {
        let events: Vec<_> = events().collect();
        let mut state = HoldState::granted(None);
        for step in steps {
            let event = events[step % events.len()];
            let (next, action) = state.next(event, &FACTS);
            let has_ended = matches!(state.phase, Phase::HandedOver | Phase::Released | Phase::Gone);
            if has_ended && event == Event::ReleaseDue {
                let is_finish = matches!(action, Action::Finish { .. });
                prop_assert!(is_finish);
            }
            prop_assert!(state.is_held() || !next.is_held(), "{state:?} {event:?}");
            prop_assert!(state.guards > 0 || next.guards == 0, "{state:?} {event:?}");
            state = next;
        }
    }
}
