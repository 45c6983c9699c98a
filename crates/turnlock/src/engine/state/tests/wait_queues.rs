use std::collections::HashSet;

use turnlock_core::model::Claim;
use turnlock_core::yielding::TURN;
use turnlock_core::{ClientId, Lease};
use turnlock_store::{Memory, MemoryStore};

use super::super::overview::PORTION;
use super::*;
use crate::activity::MAX_HOLDS;
use crate::engine::state::LeaseMode;

/// Wait queues with holds of so many permits, and the name of the semaphore.
fn queues(permits: usize) -> (Arc<WaitQueues>, LockName) {
    let memory = Memory::new(MemoryStore::new(), ClientId::from_random([1; 16]));
    let (queues, name) = (Arc::new(WaitQueues::new(Arc::new(memory))), LockName::of(Kind::Permits, "", "n"));
    let name = name.expect("a good name");
    for number in 0..permits {
        let owner = OwnerId::from_wire(&format!("permit-{number}"));
        let (mode, now) = (LeaseMode::Renewed(Lease::WATCHDOG), clock::now());
        let hold = Arc::new(Hold::granted(Claim::new(&name, &owner, 1), mode, (now, now), None));
        queues.queues.lock().entry(name.clone()).or_default().add_hold(&hold, None);
    }
    (queues, name)
}

/// Until when the waiters yield.
fn end(queues: &WaitQueues, name: &LockName) -> Moment {
    queues.queues.lock()[name].view(None, Kind::Permits).not_before
}

#[test]
fn no_client_yields_before_others_have_received_a_release() {
    let ((queues, name), now) = (queues(1), clock::now());
    assert!(!queues.begin_yielding(&name, now));
    queues.set_listeners(&name, 1, false);
    assert!(queues.begin_yielding(&name, now));
    assert_eq!(end(&queues, &name), now + TURN);
}

#[test]
fn the_next_release_does_not_begin_a_yield_again() {
    let ((queues, name), now) = (queues(1), clock::now());
    queues.set_listeners(&name, 5, false);
    assert!(queues.begin_yielding(&name, now));
    assert!(!queues.begin_yielding(&name, now + TURN));
    queues.set_listeners(&name, 5, false);
    assert_eq!(end(&queues, &name), now + TURN * 5);
}

#[test]
fn with_other_permits_a_client_yields_now_and_then() {
    for (permits, yields) in [(1, true), (2, false)] {
        let ((queues, name), now) = (queues(permits), clock::now());
        queues.set_listeners(&name, 1, false);
        assert!(queues.begin_yielding(&name, now));
        assert_eq!(queues.begin_yielding(&name, now + TURN), yields, "{permits} permits");
        assert!(queues.begin_yielding(&name, now + TURN * 2 + YIELD_PAUSE));
    }
}

/// Wait queues with so many holds of callers, of one lock each.
async fn queues_of_locks(number: usize) -> Arc<WaitQueues> {
    let call_site = CallSite::current(std::panic::Location::caller()).await;
    let (queues, _) = queues(0);
    for number in 0..number {
        let name = LockName::parse(&number.to_string()).expect("a good name");
        let (mode, now) = (LeaseMode::Renewed(Lease::WATCHDOG), clock::now());
        let claim = Claim::new(&name, &OwnerId::from_wire(name.key()), 1);
        let mut hold = Hold::granted(claim, mode, (now, now), None);
        hold.call_site = Some(call_site);
        queues.queues.lock().entry(name).or_default().add_hold(&Arc::new(hold), None);
    }
    queues
}

#[tokio::test]
async fn a_stuck_hold_comes_before_older_ones() {
    let (queues, mut all) = (queues_of_locks(2 * MAX_HOLDS).await, Vec::new());
    queues.for_each_hold_in_portions(|hold| all.push(Arc::clone(hold)));
    let newest = all.iter().max_by_key(|hold| (hold.began, hold.owner.clone())).expect("many");
    newest.is_reported_stuck.store(true, Ordering::Relaxed);
    let (_, oldest) = queues.holds_of(&HashSet::new(), clock::now());
    let first = oldest.holds.values().next().expect("many");
    assert!(Arc::ptr_eq(first, newest));
    assert_eq!((oldest.holds.len(), oldest.count), (MAX_HOLDS, 2 * MAX_HOLDS));
}

#[tokio::test]
async fn each_hold_is_visited_once_in_portions() {
    for number in [0, 1, PORTION - 1, PORTION, PORTION + 1, 3 * PORTION] {
        let queues = queues_of_locks(number).await;
        let mut visited = Vec::new();
        queues.for_each_hold_in_portions(|hold| visited.push(hold.owner.clone()));
        let different: HashSet<_> = visited.iter().collect();
        assert_eq!((visited.len(), different.len()), (number, number));
    }
}
