use turnlock_core::model::Claim;
use turnlock_core::yielding::TURN;
use turnlock_core::{ClientId, Lease};
use turnlock_store::{Memory, MemoryStore};

use super::*;
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
