use super::*;
use crate::history::{Available, LONGEST_EFFECT_MS, LatchAction, Mode, ReleaseBy, Wait};

fn event(t: u64, what: What) -> Event {
    Event { t, process: 1, what }
}

/// A history of holds of one lock: mode, permits, token, start, release and end of belief.
#[expect(clippy::type_complexity, reason = "one line for each hold is easy to read")]
fn history(kind: LockKind, holds: &[(Mode, u32, Option<u64>, u64, u64, u64)]) -> Vec<Event> {
    let locks = vec![LockInfo { name: "x".to_owned(), kind, permits: 2 }];
    let shape = "test".to_owned();
    let promises = Promises { exclusion: true, rising_tokens: true, data: true, order: true, delivery: true };
    let run = What::Run { seed: 1, shape, promises, watchdog_ms: 3_000, locks };
    let mut events = vec![event(0, run)];
    for (op, &(mode, permits, token, from, to, valid_until)) in (1..).zip(holds) {
        let acquire = What::Acquire {
            op,
            lock: 0,
            mode,
            permits,
            wait: Wait::Endless,
            lease_ms: None,
            owner_number: None,
        };
        events.push(event(from, acquire));
        events.push(event(from, What::Granted { op, owner: op.to_string(), token, valid_until }));
        events.push(event(to, What::Release { op, by: ReleaseBy::Unlock, valid_until }));
    }
    events.sort_by_key(|event| event.t);
    events.push(event(1_000, What::Healed));
    events.push(event(1_000, What::End { left: Vec::new(), available: Vec::new() }));
    events
}

const X: Mode = Mode::Exclusive;
const S: Mode = Mode::Shared;

#[test]
fn overlapping_holds_are_found() {
    let is_good = |kind, holds: &[_]| check(&history(kind, holds)).violations.is_empty();
    let lock = LockKind::Lock;
    assert!(is_good(lock, &[(X, 1, None, 10, 20, 90), (X, 1, None, 20, 30, 90)]));
    assert!(!is_good(lock, &[(X, 1, None, 10, 21, 90), (X, 1, None, 20, 30, 90)]));
    // The first one knew that its lease was over.
    assert!(is_good(lock, &[(X, 1, None, 10, 50, 20), (X, 1, None, 20, 30, 90)]));
    let read_write = LockKind::ReadWrite;
    assert!(is_good(read_write, &[(S, 1, None, 10, 50, 90), (S, 1, None, 20, 30, 90)]));
    assert!(!is_good(read_write, &[(S, 1, None, 10, 50, 90), (X, 1, None, 20, 30, 90)]));
    assert!(!is_good(read_write, &[(X, 1, None, 10, 50, 90), (S, 1, None, 20, 30, 90)]));
    let semaphore = LockKind::Semaphore;
    assert!(is_good(semaphore, &[(X, 1, None, 10, 50, 90), (X, 1, None, 20, 30, 90)]));
    assert!(!is_good(semaphore, &[(X, 1, None, 10, 50, 90), (X, 2, None, 20, 30, 90)]));
}

#[test]
fn a_holder_that_is_not_told_is_found() {
    let violations = |until: u64| {
        let holds = [(X, 1, None, 10, until, until), (X, 1, None, 20, 30, 90)];
        let mut events = history(LockKind::Lock, &holds);
        if let What::Run { promises, .. } = &mut events[0].what {
            promises.exclusion = false;
        }
        for event in &mut events {
            if let What::Granted { op: 1, valid_until, .. } = &mut event.what {
                *valid_until = 110;
            }
        }
        let verdict = check(&events);
        assert_eq!(verdict.overlaps, 1);
        verdict.violations.len()
    };
    assert_eq!(violations(20 + 100 + holds::NOTICE), 0);
    assert_eq!(violations(20 + 100 + holds::NOTICE + 1), 1);
}

#[test]
fn a_token_that_does_not_rise_is_found() {
    let is_good = |first, second| {
        let holds = [(X, 1, Some(first), 10, 20, 90), (X, 1, Some(second), 30, 40, 90)];
        check(&history(LockKind::Fenced, &holds)).violations.is_empty()
    };
    assert!(is_good(1, 2) && !is_good(2, 2) && !is_good(3, 2));
}

#[test]
fn a_loss_or_failure_without_a_fault_is_found() {
    let violations = |more: &[Event]| {
        let mut events = history(LockKind::Lock, &[(X, 1, None, 10, 90, 90)]);
        events.extend_from_slice(more);
        events.sort_by_key(|event| event.t);
        check(&events).violations.len()
    };
    let fault = |t| event(t, What::Fault { fault: "reset".into(), detail: String::new(), ends: false });
    let lost = event(50, What::Lost { op: 1, reason: "taken".into(), valid_until: 90 });
    let failed = event(50, What::Failed { op: 1, error: "down".into() });
    assert_eq!(violations(std::slice::from_ref(&lost)), 1);
    assert_eq!(violations(&[fault(5), lost]), 0);
    assert_eq!(violations(std::slice::from_ref(&failed)), 1);
    assert_eq!(violations(&[fault(5), failed]), 0);
    assert_eq!(violations(&[event(99, What::End { left: vec!["x".to_owned()], available: Vec::new() })]), 1);
}

#[test]
fn an_early_loss_of_a_fixed_lease_without_a_fault_is_found() {
    // The lease is granted until 3 s. The belief of a group ends when it loses a member.
    let violations = |lost: u64, valid_until: u64, has_fault: bool| {
        let mut events = history(LockKind::Lock, &[(X, 1, None, 10, lost + 1, 3_000_000)]);
        for event in &mut events {
            if let What::Acquire { lease_ms, .. } = &mut event.what {
                *lease_ms = Some(3_000);
            }
        }
        events.push(event(lost, What::Lost { op: 1, reason: "gone".to_owned(), valid_until }));
        events.extend(has_fault.then(|| event(5, What::fault("reset", "", false))));
        // The end of the run is no cause.
        events.iter_mut().filter(|event| event.what == What::Healed).for_each(|event| event.t = 5_000_000);
        events.sort_by_key(|event| event.t);
        check(&events).violations.len()
    };
    let (end, early) = (3_000_000, 3_000_000 - 2_001);
    assert_eq!((violations(end, end, false), violations(early + 1, end, false)), (0, 0));
    assert_eq!((violations(early, end, false), violations(early, end, true)), (1, 0));
    assert_eq!(violations(early, early, false), 1, "a member of a group");
    assert_eq!(violations(end, end + 1_000_000, false), 1, "it was extended by a reentry");
}

#[test]
fn a_failed_release_or_reentry_without_a_fault_is_found() {
    // The lease ends at 3 s.
    let (end, error) = (3_000_000, "gone".to_owned());
    let violations = |kind, lease_ms: Option<u64>, failed: u64, more: &[Event]| {
        let steps = [
            event(failed, What::Released { op: 1, error: Some(error.clone()) }),
            event(failed, What::ReentryFailed { op: 1, error: error.clone(), valid_until: end }),
        ];
        let counts = steps.map(|step| {
            let mut events = history(kind, &[(X, 1, None, 10, 20, end)]);
            for event in &mut events {
                match &mut event.what {
                    What::Acquire { lease_ms: of_hold, .. } => *of_hold = lease_ms,
                    // The end of the run is no cause.
                    What::Healed => event.t = 2 * end,
                    _ => {}
                }
            }
            events.extend(more.iter().cloned().chain([step]));
            events.sort_by_key(|event| event.t);
            check(&events).violations.len()
        });
        assert_eq!(counts[0], counts[1]);
        counts[0]
    };
    let lock = LockKind::Lock;
    assert_eq!(violations(lock, None, 30, &[]), 1);
    assert_eq!(violations(lock, None, 30, &[event(5, What::fault("reset", "", false))]), 0);
    assert_eq!(violations(lock, None, 30, &[event(5, What::fault("duplicate", "", false))]), 1);
    let lost = event(15, What::Lost { op: 1, reason: error.clone(), valid_until: end });
    assert_eq!(violations(lock, None, 30, &[lost]), 1, "only the loss has no cause");
    assert_eq!(violations(lock, None, end + 1, &[]), 1, "a lease that is renewed does not end");
    let early = end - SLACK - 1;
    assert_eq!((violations(lock, Some(9), early, &[]), violations(lock, Some(9), early + 1, &[])), (1, 0));
    assert_eq!(violations(LockKind::RedLock, None, 30, &[]), 0, "on real servers");
    let redisson = event(1, What::Process { is: ProcessState::RedissonStarted });
    assert_eq!(violations(lock, None, 30, &[redisson]), 0);
}

#[test]
fn a_failed_call_without_a_fault_is_found() {
    let violations = |more: &[Event]| {
        let mut events = history(LockKind::Lock, &[]);
        let failed = What::CallFailed { call: "the shutdown".to_owned(), error: "down".to_owned() };
        events.extend(more.iter().cloned().chain([event(50, failed)]));
        events.sort_by_key(|event| event.t);
        check(&events).violations.len()
    };
    assert_eq!((violations(&[]), violations(&[event(5, What::fault("reset", "", false))])), (1, 0));
}

#[test]
fn a_shared_lease_of_an_explicit_owner_ends_with_the_guard_that_needs_it() {
    // Granted until 9 s, which another guard needs. That one ends, and the lease gets shorter.
    let violations = |owner_number: Option<usize>| {
        let mut events = history(LockKind::Lock, &[(X, 1, None, 10, 2_000_001, 9_000_000)]);
        let lost = What::Lost { op: 1, reason: "its lease ended".to_owned(), valid_until: 2_000_000 };
        events.push(event(2_000_000, lost));
        for event in &mut events {
            match &mut event.what {
                What::Acquire { lease_ms, owner_number: number, .. } => {
                    (*lease_ms, *number) = (Some(2_000), owner_number);
                }
                What::Healed => event.t = 9_000_000,
                _ => {}
            }
        }
        events.sort_by_key(|event| event.t);
        check(&events).violations.len()
    };
    assert_eq!((violations(Some(1)), violations(None)), (0, 1));
}

#[test]
fn a_failure_of_a_latch_without_a_fault_is_found() {
    let violations = |action, has_fault: bool| {
        let mut events = history(LockKind::Latch, &[]);
        let error = Some("down".to_owned());
        events.extend([
            event(10, What::Latch { op: 1, lock: 0, action }),
            event(11, What::LatchDone { op: 1, outcome: None, error }),
        ]);
        events.extend(has_fault.then(|| event(5, What::fault("reset", "", false))));
        events.sort_by_key(|event| event.t);
        let verdict = check(&events);
        assert_eq!(verdict.failed, 1);
        verdict.violations.len()
    };
    let last = LatchAction::Wait { ms: LONGEST_EFFECT_MS };
    assert_eq!((violations(LatchAction::CountDown, false), violations(LatchAction::CountDown, true)), (1, 0));
    assert_eq!(violations(last, true), 1, "at the end");
}

#[test]
fn a_fault_explains_what_it_can_cause() {
    const SECOND: u64 = 1_000_000;
    // Process 1 loses its lock at 100 s. Its lease is 3 s.
    let is_explained = |more: &[(u64, u32, What)]| {
        let mut events = history(LockKind::Lock, &[(X, 1, None, SECOND, 101 * SECOND, 101 * SECOND)]);
        let lost = What::Lost { op: 1, reason: "gone".into(), valid_until: 101 * SECOND };
        events.push(event(100 * SECOND, lost));
        events.extend(more.iter().map(|(t, process, what)| Event {
            t: *t,
            process: *process,
            what: what.clone(),
        }));
        // The end of the run is no cause.
        events.iter_mut().filter(|event| event.what == What::Healed).for_each(|event| event.t = 102 * SECOND);
        events.sort_by_key(|event| event.t);
        let violations = check(&events).violations;
        assert!(
            violations.iter().all(|text| text.starts_with("a loss without a fault: op 1 ")),
            "{violations:?}"
        );
        violations.is_empty()
    };
    let fault = |name: &str, detail: &str, from: u64, to: u64| {
        is_explained(&[
            (from * SECOND, 0, What::fault(name, detail, false)),
            (to * SECOND, 0, What::fault(name, "", true)),
        ])
    };
    assert!(!is_explained(&[]));
    assert!(fault("black_hole", "1s", 90, 101) && fault("black_hole", "1s", 90, 95));
    assert!(!fault("black_hole", "1s", 90, 94), "a lease and two seconds later");
    assert!(!fault("lost_messages", "1s", 90, 101), "it is harmless");
    assert!(fault("kill_worker", "process 1 1s", 90, 101) && !fault("kill_worker", "process 2 1s", 90, 101));
    assert!(fault("late", "process 1 1s", 20, 20) && !fault("late", "process 1 1s", 14, 14));
    assert!(!fault("late", "process 2 1s", 20, 20) && !fault("reset", "process 2 1s", 90, 101));
    let process = |process: u32, is| (99 * SECOND, process, What::Process { is });
    assert!(!is_explained(&[process(2, ProcessState::Started), process(2, ProcessState::Stopped)]));
    assert!(is_explained(&[process(1, ProcessState::Stopped)]));
    let stalled = |process| (100 * SECOND + 5, process, What::Stalled { us: SECOND });
    assert!(is_explained(&[stalled(1)]) && !is_explained(&[stalled(2)]), "recorded a moment later");
    assert!(is_explained(&[stalled(0)]), "the whole machine");
}

#[test]
fn a_loss_that_is_reported_late_is_found() {
    const END: u64 = 3_000_000;
    // The lease ends at 3 s, and the holder releases the lock.
    let violations = |shape: &str, kind, released: u64, more: &[(u64, What)]| {
        let mut events = history(kind, &[(X, 1, None, 10, released, END)]);
        if let What::Run { shape: of_run, .. } = &mut events[0].what {
            *of_run = shape.to_owned();
        }
        events.extend(more.iter().map(|(t, what)| event(*t, what.clone())));
        events.sort_by_key(|event| event.t);
        let violations = check(&events).violations;
        assert!(violations.iter().all(|text| text.starts_with("a loss that is reported late: op 1 ")));
        violations.len()
    };
    let (lock, simulated) = (LockKind::Lock, SIMULATION);
    assert_eq!(violations(simulated, lock, END + 2_000, &[]), 0);
    assert_eq!(violations(simulated, lock, END + 2_001, &[]), 1);
    assert_eq!(violations("single, faults all", lock, END + 2_000_000, &[]), 0);
    assert_eq!(violations("single, faults all", lock, END + 2_000_001, &[]), 1);
    assert_eq!(violations(simulated, LockKind::RedLock, 2 * END, &[]), 0);
    let process = |is| What::Process { is };
    let stopped =
        |until| [(END - 1, process(ProcessState::Stopped)), (until, process(ProcessState::Continued))];
    assert_eq!(violations(simulated, lock, END + 9_000, &stopped(END + 7_000)), 0);
    assert_eq!(violations(simulated, lock, END + 9_001, &stopped(END + 7_000)), 1);
    let stalled = (END + 9_000_001, What::Stalled { us: 7_000_000 });
    assert_eq!(violations("file, faults all", lock, END + 9_000_000, &[stalled]), 0);
    let redisson = (1, process(ProcessState::RedissonStarted));
    assert_eq!(violations("single, faults all", lock, 3 * END, &[redisson]), 0);
}

#[test]
fn a_run_whose_servers_do_not_recover_is_checked_but_for_its_end() {
    let holds = [(X, 1, None, 10, 21, 90), (X, 1, None, 20, 30, 90)];
    let events = |holds: &[_]| {
        let mut events = history(LockKind::Lock, holds);
        let last = What::Acquire {
            op: 9,
            lock: 0,
            mode: X,
            permits: 1,
            wait: Wait::For { ms: LONGEST_EFFECT_MS },
            lease_ms: None,
            owner_number: None,
        };
        let at_end = [
            last,
            What::Failed { op: 9, error: "down".to_owned() },
            What::Process { is: ProcessState::Stuck },
            What::Process { is: ProcessState::Failed },
            What::End { left: vec!["x".to_owned()], available: Vec::new() },
        ];
        events.extend(at_end.map(|what| event(1_001, what)));
        events
    };
    assert_eq!(check(&events(&[])).violations.len(), 4);
    assert_eq!(check_unfinished(&events(&[])).violations, Vec::<String>::new());
    assert_eq!(check_unfinished(&events(&holds)).violations.len(), 1, "an overlap");
    for what in [
        What::Process { is: ProcessState::Panicked },
        What::Deadlock { text: "x".to_owned() },
        What::Lost { op: 1, reason: "gone".to_owned(), valid_until: 90 },
    ] {
        let mut events = events(&holds[1..]);
        events.insert(3, event(21, what.clone()));
        assert_eq!(check_unfinished(&events).violations.len(), 1, "{what:?}");
    }
}

#[test]
fn holds_of_one_explicit_owner_may_overlap() {
    let violations = |owners: [Option<usize>; 2]| {
        let mut events = history(LockKind::Lock, &[(X, 1, None, 10, 50, 90), (X, 1, None, 20, 30, 90)]);
        let acquires = events.iter_mut().filter_map(|event| match &mut event.what {
            What::Acquire { owner_number, .. } => Some(owner_number),
            _ => None,
        });
        acquires.zip(owners).for_each(|(number, owner)| *number = owner);
        check(&events).violations.len()
    };
    assert_eq!((violations([Some(1), Some(1)]), violations([Some(1), Some(2)])), (0, 1));
    assert_eq!((violations([Some(1), None]), violations([None, None])), (1, 1));
}

#[test]
fn a_delayed_release_excludes_others_until_its_time() {
    let violations = |second: u64| {
        let holds = [(X, 1, None, 10, 20, 90), (X, 1, None, second, second + 1, second + 9)];
        let mut events = history(LockKind::Lock, &holds);
        let release = events.iter_mut().find_map(|event| match &mut event.what {
            What::Release { op: 1, by, .. } => Some(by),
            _ => None,
        });
        *release.expect("it is released") = ReleaseBy::UnlockAfter { ms: 1 };
        events.push(event(21, What::Released { op: 1, error: None }));
        events.sort_by_key(|event| event.t);
        check(&events).violations.len()
    };
    assert_eq!((violations(1_000), violations(1_010)), (1, 0));
}

#[test]
fn a_latch_that_opens_too_early_is_found() {
    let violations = |count_downs: u64, last: LatchAction, outcome: bool| {
        let mut events = history(LockKind::Latch, &[]);
        let mut t = 10;
        let mut act = |op: u64, action, outcome| {
            events.push(event(t, What::Latch { op, lock: 0, action }));
            events.push(event(t + 1, What::LatchDone { op, outcome, error: None }));
            t += 2;
        };
        act(1, LatchAction::CountDown, Some(true));
        act(2, LatchAction::Set { count: 2 }, Some(true));
        (0..count_downs).for_each(|number| act(3 + number, LatchAction::CountDown, Some(true)));
        act(10, last, Some(outcome));
        events.sort_by_key(|event| event.t);
        check(&events).violations.len()
    };
    let wait = LatchAction::Wait { ms: 5 };
    assert_eq!((violations(1, wait, true), violations(2, wait, true)), (1, 0));
    let last = LatchAction::Wait { ms: LONGEST_EFFECT_MS };
    assert_eq!((violations(1, wait, false), violations(2, last, false)), (0, 1));
}

#[test]
fn a_holder_that_is_not_told_of_a_loss_is_found() {
    // Lost after so many seconds; the data was lost after one.
    let violations = |lost: u64, ends: u64| {
        let second = 1_000_000;
        let mut events = history(LockKind::Lock, &[(X, 1, None, 10, lost * second + 1, (lost + 9) * second)]);
        if let What::Run { watchdog_ms, .. } = &mut events[0].what {
            *watchdog_ms = 30_000;
        }
        let fault = |ends| What::fault("data_loss", "", ends);
        events.extend([event(second, fault(false)), event(ends * second, fault(true))]);
        let reason = "gone".to_owned();
        events.push(event(lost * second, What::Lost { op: 1, reason, valid_until: (lost + 9) * second }));
        events.sort_by_key(|event| event.t);
        check(&events).violations.len()
    };
    assert_eq!((violations(5, 2), violations(7, 2)), (0, 1), "four seconds after the fault");
    assert_eq!((violations(7, 6), violations(34, 31)), (0, 1), "the lease");
}

#[test]
fn counts_permits_positions_and_stale_writes_are_checked() {
    let violations = |what: What| {
        let holds = [(X, 1, Some(5), 10, 60, 90), (X, 1, Some(6), 70, 80, 90)];
        let mut events = history(LockKind::Fenced, &holds);
        events.push(event(75, what));
        events.push(event(76, What::Write { op: 2, token: 6 }));
        events.sort_by_key(|event| event.t);
        let verdict = check(&events);
        (verdict.violations.len(), verdict.rejected)
    };
    let count = |stored, in_doubt| What::Count { op: 2, count: 2, stored: Some(stored), in_doubt };
    assert_eq!((violations(count(2, false)), violations(count(1, false))), ((0, 0), (1, 0)));
    assert_eq!((violations(count(3, false)), violations(count(3, true))), ((1, 0), (0, 0)));
    assert_eq!((violations(count(4, true)), violations(count(1, true))), ((1, 0), (1, 0)));
    let end = |permits| What::End { left: Vec::new(), available: vec![Available { lock: 0, permits }] };
    assert_eq!((violations(end(2)), violations(end(1))), ((0, 0), (1, 0)));
    assert_eq!(violations(What::Purged { owner: "x".to_owned() }), (1, 0));
    assert_eq!(violations(What::Deadlock { text: "x".to_owned() }), (1, 0));
    assert_eq!(violations(What::Memory { kib: MOST_MEMORY_KIB }), (0, 0));
    assert_eq!(violations(What::Memory { kib: MOST_MEMORY_KIB + 1 }), (1, 0));
    assert_eq!(violations(What::Process { is: ProcessState::Stuck }), (1, 0));
    assert_eq!(violations(What::Process { is: ProcessState::Failed }), (1, 0));
    // The first holder is gone, and writes all the same: before the second one, and after it.
    assert_eq!(violations(What::Write { op: 1, token: 5 }), (0, 0));
    assert_eq!(violations(What::Write { op: 2, token: 7 }), (1, 1), "its own second write is rejected");
}
