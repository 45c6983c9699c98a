//! Semaphores and latches without a runtime.

use std::time::Instant;

use turnlock::Error;
use turnlock::blocking::Interrupt;
use turnlock_testkit::in_time;

use crate::rig::{PROMPT, Rig, joined, ms};
use crate::{Case, cases};

pub(super) const CASES: &[Case] = cases![
    threads_share_a_semaphore,
    threads_share_permits_with_leases,
    threads_wait_for_a_latch,
    waits_of_threads_can_be_interrupted,
];

/// Runs a body that blocks, on a thread where that is allowed.
async fn on_a_thread(rig: Rig, body: impl FnOnce(&Rig) + Send + 'static) {
    joined(tokio::task::spawn_blocking(move || body(&rig))).await;
}

/// Looks again and again, until it is so.
fn until(what: &str, mut probe: impl FnMut() -> bool) {
    let start = Instant::now();
    while !probe() {
        in_time(what, start, ms(20_000));
        std::thread::yield_now();
    }
}

async fn threads_share_a_semaphore(rig: Rig) {
    on_a_thread(rig, |rig| {
        let slots = rig.blocking_client().semaphore(&rig.name());
        assert!(
            slots.try_set_permits(2).expect("an answer") && !slots.try_set_permits(3).expect("an answer")
        );
        let held = slots.acquire(2).expect("free");
        assert_eq!((held.count(), held.is_valid(), slots.available().unwrap()), (2, true, 0));
        assert!(slots.try_acquire(1).expect("an answer").is_none(), "a thread owns no permits");
        assert!(slots.try_acquire_for(1, ms(20)).expect("an answer").is_none());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| slots.acquire(1).expect("a turn").release().expect("held"));
            until("it waits", || slots.inspect().expect("an answer").waiting_here == 1);
            let start = Instant::now();
            held.release().expect("held");
            waiter.join().expect("no panic");
            in_time("it is woken", start, PROMPT);
        });
        drop(slots.acquire(1).expect("free"));
        until("a drop gives back", || slots.available().expect("an answer") == 2);
        slots.acquire(1).expect("free").forget();
        assert_eq!(slots.release(1).expect("an answer"), 2);
        assert_eq!(
            (slots.add_permits(-1).unwrap(), slots.drain().unwrap(), slots.delete().unwrap()),
            (1, 1, true)
        );
    })
    .await;
}

async fn threads_share_permits_with_leases(rig: Rig) {
    on_a_thread(rig, |rig| {
        let slots = rig.blocking_client().permit_semaphore(&rig.name());
        assert!(slots.try_set_permits(1).expect("an answer"));
        let short = slots.lease(ms(200)).acquire(1).expect("free");
        assert_eq!(short.ids().len(), 1);
        let next = slots.try_acquire_for(1, ms(2_000)).expect("an answer").expect("the lease ended");
        assert!(!short.is_valid());
        short.wait_lost();
        assert!(matches!(short.release(), Err(Error::Lost { .. })));
        assert_eq!((slots.set_permits(3).unwrap(), slots.add_permits(1).unwrap()), (2, 3));
        next.release().expect("held");
        assert_eq!((slots.available().unwrap(), slots.inspect().unwrap().holders.len()), (4, 0));
        assert!(slots.try_acquire(5).expect("an answer").is_none());
        assert!(slots.delete().expect("an answer"));
    })
    .await;
}

async fn threads_wait_for_a_latch(rig: Rig) {
    on_a_thread(rig, |rig| {
        let latch = rig.blocking_client().latch(&rig.name());
        assert!(latch.try_set_count(2).expect("an answer"));
        assert!(!latch.wait_for(ms(20)).expect("an answer"));
        std::thread::scope(|scope| {
            let waiters = [
                scope.spawn(|| latch.wait()),
                scope.spawn(|| latch.wait_for(ms(5_000)).map(|open| assert!(open))),
            ];
            until("they wait", || latch.inspect().expect("an answer").waiting_here == 2);
            assert_eq!((latch.count_down().unwrap(), latch.count().unwrap()), (1, 1));
            assert_eq!(latch.count_down().expect("an answer"), 0);
            for waiter in waiters {
                waiter.join().expect("no panic").expect("it opened");
            }
        });
        assert!(!latch.delete().expect("an answer"));
    })
    .await;
}

async fn waits_of_threads_can_be_interrupted(rig: Rig) {
    on_a_thread(rig, |rig| {
        let client = rig.blocking_client();
        let interrupt = Interrupt::new();
        let (semaphore, permits, latch) =
            (client.semaphore(&rig.name()), client.permit_semaphore(&rig.name()), client.latch(&rig.name()));
        assert!(latch.try_set_count(1).expect("an answer"));
        std::thread::scope(|scope| {
            let waiters = [
                scope.spawn(|| semaphore.interruptible(&interrupt).acquire(1).map(drop)),
                scope.spawn(|| permits.interruptible(&interrupt).acquire(1).map(drop)),
                scope.spawn(|| latch.interruptible(&interrupt).wait()),
            ];
            until("they wait", || {
                let waiting = [semaphore.inspect(), permits.inspect(), latch.inspect()];
                waiting.into_iter().all(|seen| seen.expect("an answer").waiting_here == 1)
            });
            interrupt.interrupt();
            for waiter in waiters {
                let outcome = waiter.join().expect("no panic");
                assert!(matches!(outcome, Err(Error::Interrupted { .. })), "{outcome:?}");
            }
        });
        // A question that was under way keeps its place until it is answered.
        until("nobody waits", || {
            let waiting = [semaphore.inspect(), permits.inspect(), latch.inspect()];
            waiting.into_iter().all(|seen| seen.expect("an answer").waiting_here == 0)
        });
        assert!(semaphore.try_set_permits(1).expect("an answer"), "the others are as they were");
        semaphore.acquire(1).expect("free").release().expect("held");
    })
    .await;
}
