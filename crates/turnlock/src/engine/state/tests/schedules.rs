//! The state of a client under many schedules of the threads that share it.

use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Waker;

use shuttle::future::{block_on, spawn};
use shuttle::thread;
use turnlock_core::model::Claim;
use turnlock_core::{ClientId, Kind, Lease, LockName, Moment, OwnerId};
use turnlock_store::{Memory, MemoryStore, Sent};
use turnlock_testkit::schedules::schedule_point;

use super::fair_waiter::UNRESPONSIVE_AFTER;
use super::*;
use crate::clock;
use crate::engine::schedules::{choose, explore};

const RENEWED: LeaseMode = LeaseMode::Renewed(Lease::WATCHDOG);

fn name() -> LockName {
    LockName::of(Kind::Lock, "", "n").expect("a good name")
}

fn hold() -> Arc<Hold> {
    let (claim, now) = (Claim::new(&name(), &OwnerId::from_wire("a:1"), 1), clock::now());
    Arc::new(Hold::granted(claim, RENEWED, (now, now), None))
}

fn wakeup() -> Wakeup {
    let call_site = CallSite::new(Location::caller(), Waker::noop());
    let caller = Caller { call_site, began: clock::now(), ends: Moment::NEVER, name: name(), owner: 2 };
    Wakeup::new(Some(0), caller)
}

fn wait_queues() -> Arc<WaitQueues> {
    let memory = Memory::new(MemoryStore::new(), ClientId::from_random([1; 16]));
    Arc::new(WaitQueues::new(Arc::new(memory)))
}

fn enter(queues: &Arc<WaitQueues>) -> Waiter {
    queues.enter(&name(), Join::AtEnd, wakeup()).0
}

/// Waits until a waiter is in front and the lock is free, and leaves the queue.
async fn wait_for_turn(waiter: Waiter) {
    loop {
        let view = waiter.view();
        if view.may_send && !view.is_held_locally {
            return;
        }
        waiter.wakeup.notified().await;
    }
}

#[test]
fn each_waiter_is_woken_for_its_turn_when_others_release_leave_and_arrive() {
    explore(1_000, |_| {
        let (queues, hold) = (wait_queues(), hold());
        enter(&queues).leave_granted(&hold, None);
        let [leaving, staying] = [(); 2].map(|()| enter(&queues));
        let staying = spawn(wait_for_turn(staying));
        let arriving = spawn({
            let queues = Arc::clone(&queues);
            async move { wait_for_turn(enter(&queues)).await }
        });
        let left = thread::spawn(move || drop(leaving));
        queues.remove_hold(&hold);
        // If a wake-up is lost, all threads wait.
        block_on(async {
            staying.await.expect("no panic");
            arriving.await.expect("no panic");
        });
        left.join().expect("no panic");
        assert_eq!(queues.counts(), (0, 0));
    });
}

/// What has become of a hold that was offered to a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Accepted,
    /// By the waiter or by the end of the window, each of which then releases the hold.
    TakenBack,
    /// Not handed over: its holder releases it.
    Kept,
}

#[test]
fn an_offered_hold_is_accepted_or_taken_back_once() {
    explore(2_000, |_| {
        let (queues, watchdog, hold) = (wait_queues(), Arc::new(Watchdog::new(Lease::WATCHDOG)), hold());
        watchdog.watch(&hold, clock::now());
        enter(&queues).leave_granted(&hold, None);
        let waiter = enter(&queues);
        let holder = thread::spawn({
            let (queues, hold) = (Arc::clone(&queues), Arc::clone(&hold));
            move || {
                let is_handed_over = queues.hand_over(&hold, || hold.offer(RENEWED, clock::now()));
                (!is_handed_over).then_some(End::Kept)
            }
        });
        let window = thread::spawn({
            let (queues, owner) = (Arc::clone(&queues), hold.owner.clone());
            move || queues.end_window(&name(), &owner).map(|_| End::TakenBack)
        });
        let checked = thread::spawn({
            let watchdog = Arc::clone(&watchdog);
            move || {
                watchdog.check_all_now();
                for hold in watchdog.take_due(clock::now()) {
                    watchdog.plan_end(&hold, clock::now());
                }
            }
        });
        let gives_up = choose(2) == 0;
        let waiting = thread::spawn({
            let watchdog = Arc::clone(&watchdog);
            move || accept_or_give_up(&watchdog, waiter, gives_up)
        });
        checked.join().expect("no panic");
        let (kept, taken_back) = (holder.join().expect("no panic"), window.join().expect("no panic"));
        let (mut waiter, end) = waiting.join().expect("no panic");
        // What was handed over after its last look is given up with the waiter.
        let unseen = waiter.as_mut().and_then(Waiter::give_up).map(|_| End::TakenBack);
        let ends: Vec<_> = [kept, taken_back, end, unseen].into_iter().flatten().collect();
        assert_eq!(ends.len(), 1, "{ends:?}");
        let mut holds = Vec::new();
        queues.for_holds(&name(), |hold| holds.push(Arc::clone(hold)));
        assert_eq!(holds.len(), 1, "the hold stays until it is released: {ends:?}");
        let is_watched = holds[0].inner().appointment.is_some();
        assert!(is_watched || !holds[0].is_valid(), "used, and not watched: {ends:?}");
        assert_eq!(queues.waiting(&name()), 0);
    });
}

/// Looks for a hold that was handed over, and accepts it. `None` with the waiter if there was none.
fn accept_or_give_up(
    watchdog: &Watchdog,
    mut waiter: Waiter,
    gives_up: bool,
) -> (Option<Waiter>, Option<End>) {
    if gives_up {
        let handed = waiter.give_up();
        return (None, handed.map(|_| End::TakenBack));
    }
    let Some(handed) = waiter.wakeup.take_handed() else { return (Some(waiter), None) };
    let next = Arc::new(handed.for_next_holder(RENEWED, 0, CallSite::new(Location::caller(), Waker::noop())));
    let is_accepted =
        waiter.accept_hand_over(&handed, &next, Moment::NEVER, || watchdog.transfer(&handed, &next));
    if is_accepted {
        assert_eq!(handed.guards(), 0);
        return (None, Some(End::Accepted));
    }
    (Some(waiter), Some(End::TakenBack))
}

#[test]
fn a_waiter_for_the_end_of_a_request_is_woken() {
    explore(400, |_| {
        let wakeup = Arc::new(wakeup());
        wakeup.begin_request();
        let waiting = spawn({
            let wakeup = Arc::clone(&wakeup);
            async move { wakeup.request_ended().await }
        });
        let ended = thread::spawn(move || wakeup.end_request());
        block_on(waiting).expect("no panic");
        ended.join().expect("no panic");
    });
}

#[test]
fn the_end_of_the_last_renewal_wakes_who_waits_for_it() {
    explore(400, |_| {
        let hold = hold();
        let begin = || RenewalUnderWay::begin(Arc::clone(&hold), clock::now()).expect("held");
        let renewals = [(); 2].map(|()| begin()).map(|renewal| thread::spawn(move || drop(renewal)));
        block_on(RenewalUnderWay::wait_for_none(&hold));
        assert_eq!(hold.inner().renewals_under_way, 0);
        for renewal in renewals {
            renewal.join().expect("no panic");
        }
    });
}

const SENT: Sent = Sent { connection: 1, at: Moment::from_micros(1_000_000) };

/// Sends a request for an owner, while no other may.
fn send_alone(senders: &AtomicU32) {
    assert_eq!(senders.fetch_add(1, Ordering::Relaxed), 0, "two requests for one owner");
    schedule_point();
    senders.fetch_sub(1, Ordering::Relaxed);
}

/// The threads: a holder that releases, the waiter, and the task that takes back what the waiter does not see.
#[test]
fn a_fair_grant_is_seen_or_taken_back_once_and_one_request_is_sent_at_a_time() {
    explore(2_000, |_| {
        let (heartbeats, wakeup) =
            (Arc::new(Heartbeats::new(ClientId::from_random([1; 16]))), Arc::new(wakeup()));
        let (owner, lease) = (OwnerId::from_wire("client:1"), Some(Lease::WATCHDOG));
        let entry = heartbeats.add(&name(), &owner, &wakeup, lease, clock::now());
        let waiter = Arc::clone(&entry.waiter);
        let (senders, grants, ends) = <(Arc<AtomicU32>, Arc<AtomicU32>, Arc<AtomicU32>)>::default();
        let holder = thread::spawn({
            let (senders, grants, ends) = (Arc::clone(&senders), Arc::clone(&grants), Arc::clone(&ends));
            move || {
                let Some((next, _)) = heartbeats.name_next(&name()) else { return };
                send_alone(&senders);
                grants.fetch_add(1, Ordering::Relaxed);
                // If the waiter is gone, the grant is undone.
                let unseen = next.end_release(Some(Ok(SENT)));
                ends.fetch_add(u32::from(unseen.is_some()), Ordering::Relaxed);
            }
        });
        let taking_back = thread::spawn({
            let (waiter, senders, ends) = (Arc::clone(&waiter), Arc::clone(&senders), Arc::clone(&ends));
            move || {
                let later = clock::now() + UNRESPONSIVE_AFTER;
                if let Some((IgnoredOutcome::TakeBack, _)) = waiter.take_ignored(later) {
                    send_alone(&senders);
                    ends.fetch_add(1, Ordering::Relaxed);
                    waiter.end_taking_back(true);
                }
            }
        });
        let waiting = thread::spawn({
            let (senders, ends) = (Arc::clone(&senders), Arc::clone(&ends));
            move || {
                if entry.waiter.begin_request() {
                    send_alone(&senders);
                    entry.waiter.end_request();
                }
                let seen = matches!(entry.waiter.take_outcome(SENT.at), Some(FoundOutcome::Granted(_)));
                let unseen = entry.close();
                assert!(!(seen && unseen.is_some()), "seen, and to be undone");
                ends.fetch_add(u32::from(seen || unseen.is_some()), Ordering::Relaxed);
            }
        });
        for thread in [holder, taking_back, waiting] {
            thread.join().expect("no panic");
        }
        assert_eq!(grants.load(Ordering::Relaxed), ends.load(Ordering::Relaxed), "a grant has one end");
    });
}
