use std::time::Duration;

use super::*;
use crate::{Kind, LockName};

const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaa00000000";
const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbb00000000";

fn at(millis: u64) -> Now {
    Now { moment: Moment::from_micros(0) + Duration::from_millis(millis), wall: 0 }
}

fn lease(millis: u64) -> Lease {
    Lease::new(Duration::from_millis(millis)).expect("valid")
}

fn with_permits(permits: u64) -> PermitSemaphoreState {
    let mut state = PermitSemaphoreState::default();
    state.perform(at(0), CounterOp::SetOnce(permits), &OwnerId::from_wire("set"));
    state
}

fn with_claim<T>(owner: &str, permits: u32, step: impl FnOnce(&Claim) -> T) -> T {
    let name = LockName::of(Kind::Permits, "", "n").expect("a valid name");
    let owner = OwnerId::from_wire(owner);
    step(&Claim { permits, ..Claim::new(&name, &owner, 1) })
}

fn acquire(
    state: &mut PermitSemaphoreState,
    now: u64,
    owner: &str,
    permits: u32,
    millis: u64,
) -> (Acquired, Notification) {
    let options = AcquireOptions { lease: lease(millis), waits: true, highest_token: 0 };
    with_claim(owner, permits, |claim| state.acquire(at(now), claim, &options))
}

fn release(
    state: &mut PermitSemaphoreState,
    now: u64,
    owner: &str,
    permits: u32,
) -> (Released, Notification) {
    with_claim(owner, permits, |claim| state.release(at(now), claim))
}

fn renew(state: &mut PermitSemaphoreState, now: u64, owner: &str, permits: u32, millis: u64) -> Renewed {
    with_claim(owner, permits, |claim| state.renew(at(now), claim, Some(lease(millis))))
}

fn free(state: &mut PermitSemaphoreState, now: u64) -> Option<i64> {
    state.snapshot(at(now)).number
}

#[test]
fn a_repeated_acquire_or_release_counts_once() {
    let mut state = with_permits(3);
    for _ in 0..2 {
        assert_eq!(acquire(&mut state, 0, A, 2, 100), (Acquired::Granted, Notification::None));
    }
    assert_eq!(free(&mut state, 0), Some(1));
    let busy = Acquired::Busy { ttl: Some(Duration::from_millis(60)) };
    assert_eq!(acquire(&mut state, 40, B, 2, 100), (busy, Notification::None));
    assert_eq!(release(&mut state, 50, A, 2), (Released::Freed, Notification::Subscribers));
    assert_eq!(release(&mut state, 50, A, 2), (Released::NotHeld, Notification::None));
    assert_eq!(free(&mut state, 50), Some(3));
}

#[test]
fn expired_permits_are_free_and_the_next_acquire_notifies() {
    let mut state = with_permits(2);
    acquire(&mut state, 0, A, 2, 100);
    assert_eq!((free(&mut state, 99), free(&mut state, 100)), (Some(0), Some(2)));
    assert_eq!(renew(&mut state, 100, A, 2, 100), Renewed::NotHeld);
    assert_eq!(acquire(&mut state, 100, B, 1, 100), (Acquired::Granted, Notification::Subscribers));
    assert_eq!(free(&mut state, 100), Some(1));
    assert_eq!(release(&mut state, 100, A, 2), (Released::NotHeld, Notification::None));
}

#[test]
fn a_late_release_returns_the_permit_and_replies_not_held() {
    let mut state = with_permits(1);
    acquire(&mut state, 0, A, 1, 100);
    assert_eq!(release(&mut state, 100, A, 1), (Released::NotHeld, Notification::Subscribers));
    assert_eq!(acquire(&mut state, 100, B, 1, 100), (Acquired::Granted, Notification::None));
}

#[test]
fn a_renewal_never_shortens_a_lease() {
    let mut state = with_permits(1);
    acquire(&mut state, 0, A, 1, 100);
    acquire(&mut state, 10, A, 1, 20);
    assert_eq!(renew(&mut state, 10, A, 1, 30), Renewed::Longer);
    assert_eq!(state.snapshot(at(10)).holders[0].ttl, Some(Duration::from_millis(90)));
    assert_eq!(renew(&mut state, 90, A, 1, 30), Renewed::Renewed);
    assert_eq!(renew(&mut state, 119, B, 1, 30), Renewed::NotHeld);
    assert_eq!(state.snapshot(at(119)).holders.len(), 1);
}

#[test]
fn permits_of_a_deleted_count_are_not_returned() {
    let mut state = with_permits(2);
    acquire(&mut state, 0, A, 1, 100);
    acquire(&mut state, 0, B, 1, 50);
    state.delete_count();
    assert_eq!(release(&mut state, 10, A, 1), (Released::NotHeld, Notification::None));
    assert_eq!(
        acquire(&mut state, 60, A, 1, 100),
        (Acquired::Busy { ttl: None }, Notification::None),
        "expired permits are gone with the count"
    );
    assert_eq!(state.snapshot(at(60)), Snapshot::default());
}

#[test]
fn the_total_includes_taken_permits() {
    let mut state = with_permits(3);
    acquire(&mut state, 0, A, 2, 100);
    let [one, two, three, four, five, six] = ["1", "2", "3", "4", "5", "6"].map(OwnerId::from_wire);
    assert_eq!(state.perform(at(0), CounterOp::SetTotal(5), &one), (3, Notification::Subscribers));
    assert_eq!(state.perform(at(0), CounterOp::SetTotal(5), &two), (3, Notification::None));
    assert_eq!(state.perform(at(0), CounterOp::SetTotal(1), &three), (-1, Notification::Subscribers));
    assert_eq!(state.perform(at(0), CounterOp::Add(-1), &four), (-2, Notification::None));
    assert_eq!(state.perform(at(0), CounterOp::Add(-1), &four), (-2, Notification::None));
    assert_eq!(free(&mut state, 100), Some(0));
    for _ in 0..2 {
        assert_eq!(state.perform(at(100), CounterOp::Delete, &five), (1, Notification::None));
    }
    assert_eq!(state.perform(at(100), CounterOp::Delete, &six), (0, Notification::None));
}

#[test]
fn unlock_after_sets_the_end_of_a_hold() {
    let mut state = with_permits(3);
    let unlock_after = |state: &mut PermitSemaphoreState, now, permits, millis| {
        with_claim(A, permits, |claim| state.unlock_after(at(now), claim, lease(millis)))
    };
    assert_eq!(
        unlock_after(&mut state, 0, 2, 50),
        (Renewed::NotHeld, Notification::None),
        "acquires nothing"
    );
    acquire(&mut state, 0, A, 2, 100);
    assert_eq!(unlock_after(&mut state, 0, 3, 50), (Renewed::NotHeld, Notification::None), "all or none");
    assert_eq!(unlock_after(&mut state, 0, 2, 200), (Renewed::Renewed, Notification::None));
    assert_eq!(free(&mut state, 199), Some(1));
    assert_eq!(
        unlock_after(&mut state, 100, 2, 50),
        (Renewed::Renewed, Notification::Subscribers),
        "sooner than the waiters know"
    );
    assert_eq!((free(&mut state, 149), free(&mut state, 150)), (Some(1), Some(3)));
    assert_eq!(
        unlock_after(&mut state, 150, 2, 50),
        (Renewed::NotHeld, Notification::None),
        "revives no hold"
    );
}
