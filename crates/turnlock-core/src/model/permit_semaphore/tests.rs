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
    state.perform(at(0), Deed::SetOnce(permits), &OwnerId::from_wire("set"));
    state
}

fn with_claim<T>(owner: &str, permits: u32, step: impl FnOnce(&Claim<'_>) -> T) -> T {
    let name = LockName::of(Kind::Permits, "", "n").expect("a good name");
    let owner = OwnerId::from_wire(owner);
    step(&Claim { permits, ..Claim::new(&name, &owner, 1) })
}

fn acquire(
    state: &mut PermitSemaphoreState,
    now: u64,
    owner: &str,
    permits: u32,
    millis: u64,
) -> (Acquired, Wake) {
    let wish = Wish { lease: lease(millis), waits: true, highest_token: 0 };
    with_claim(owner, permits, |claim| state.acquire(at(now), claim, &wish))
}

fn release(state: &mut PermitSemaphoreState, now: u64, owner: &str, permits: u32) -> (Released, Wake) {
    with_claim(owner, permits, |claim| state.release(at(now), claim))
}

fn renew(state: &mut PermitSemaphoreState, now: u64, owner: &str, permits: u32, millis: u64) -> Renewed {
    with_claim(owner, permits, |claim| state.renew(at(now), claim, Some(lease(millis))))
}

fn free(state: &mut PermitSemaphoreState, now: u64) -> Option<i64> {
    state.snapshot(at(now)).number
}

#[test]
fn a_hold_takes_once_and_gives_back_once() {
    let mut state = with_permits(3);
    for _ in 0..2 {
        assert_eq!(acquire(&mut state, 0, A, 2, 100), (Acquired::Granted, Wake::Nobody));
    }
    assert_eq!(free(&mut state, 0), Some(1));
    let busy = Acquired::Busy { ttl: Some(Duration::from_millis(60)) };
    assert_eq!(acquire(&mut state, 40, B, 2, 100), (busy, Wake::Nobody));
    assert_eq!(release(&mut state, 50, A, 2), (Released::Freed, Wake::Listeners));
    assert_eq!(release(&mut state, 50, A, 2), (Released::NotHeld, Wake::Nobody));
    assert_eq!(free(&mut state, 50), Some(3));
}

#[test]
fn what_ran_out_is_free_and_the_next_one_who_comes_tells() {
    let mut state = with_permits(2);
    acquire(&mut state, 0, A, 2, 100);
    assert_eq!((free(&mut state, 99), free(&mut state, 100)), (Some(0), Some(2)));
    assert_eq!(renew(&mut state, 100, A, 2, 100), Renewed::NotHeld);
    assert_eq!(acquire(&mut state, 100, B, 1, 100), (Acquired::Granted, Wake::Listeners));
    assert_eq!(free(&mut state, 100), Some(1));
    assert_eq!(release(&mut state, 100, A, 2), (Released::NotHeld, Wake::Nobody));
}

#[test]
fn a_late_holder_gives_back_what_it_had_lost_and_is_told_so() {
    let mut state = with_permits(1);
    acquire(&mut state, 0, A, 1, 100);
    assert_eq!(release(&mut state, 100, A, 1), (Released::NotHeld, Wake::Listeners));
    assert_eq!(acquire(&mut state, 100, B, 1, 100), (Acquired::Granted, Wake::Nobody));
}

#[test]
fn no_lease_is_shortened() {
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
fn nothing_is_given_back_to_a_number_that_is_lost() {
    let mut state = with_permits(2);
    acquire(&mut state, 0, A, 1, 100);
    acquire(&mut state, 0, B, 1, 50);
    state.lose_number();
    assert_eq!(release(&mut state, 10, A, 1), (Released::NotHeld, Wake::Nobody));
    assert_eq!(
        acquire(&mut state, 60, A, 1, 100),
        (Acquired::Busy { ttl: None }, Wake::Nobody),
        "and what ran out is gone with it"
    );
    assert_eq!(state.snapshot(at(60)), Snapshot::default());
}

#[test]
fn the_total_counts_what_is_taken() {
    let mut state = with_permits(3);
    acquire(&mut state, 0, A, 2, 100);
    let [one, two, three, four, five, six] = ["1", "2", "3", "4", "5", "6"].map(OwnerId::from_wire);
    assert_eq!(state.perform(at(0), Deed::SetTotal(5), &one), (3, Wake::Listeners));
    assert_eq!(state.perform(at(0), Deed::SetTotal(5), &two), (3, Wake::Nobody));
    assert_eq!(state.perform(at(0), Deed::SetTotal(1), &three), (-1, Wake::Listeners));
    assert_eq!(state.perform(at(0), Deed::Add(-1), &four), (-2, Wake::Nobody));
    assert_eq!(state.perform(at(0), Deed::Add(-1), &four), (-2, Wake::Nobody));
    assert_eq!(free(&mut state, 100), Some(0));
    for _ in 0..2 {
        assert_eq!(state.perform(at(100), Deed::Delete, &five), (1, Wake::Nobody));
    }
    assert_eq!(state.perform(at(100), Deed::Delete, &six), (0, Wake::Nobody));
}

#[test]
fn what_is_kept_ends_when_its_owner_said() {
    let mut state = with_permits(3);
    let keep = |state: &mut PermitSemaphoreState, now, permits, millis| {
        with_claim(A, permits, |claim| state.keep(at(now), claim, lease(millis)))
    };
    assert_eq!(keep(&mut state, 0, 2, 50), (Renewed::NotHeld, Wake::Nobody), "takes nothing");
    acquire(&mut state, 0, A, 2, 100);
    assert_eq!(keep(&mut state, 0, 3, 50), (Renewed::NotHeld, Wake::Nobody), "all or none");
    assert_eq!(keep(&mut state, 0, 2, 200), (Renewed::Renewed, Wake::Nobody));
    assert_eq!(free(&mut state, 199), Some(1));
    assert_eq!(keep(&mut state, 100, 2, 50), (Renewed::Renewed, Wake::Listeners), "sooner than was told");
    assert_eq!((free(&mut state, 149), free(&mut state, 150)), (Some(1), Some(3)));
    assert_eq!(keep(&mut state, 150, 2, 50), (Renewed::NotHeld, Wake::Nobody), "revives nothing");
}
