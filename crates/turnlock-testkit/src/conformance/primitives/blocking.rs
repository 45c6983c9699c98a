//! The blocking interface of semaphores, latches and read-write locks.

use std::time::Instant;

use crate::conformance::{Case, Fixture, PROMPT, cases, joined, ms};
use crate::in_time;
use turnlock::Error;
use turnlock::blocking::Interrupt;

pub(super) const CASES: &[Case] = cases![
    threads_share_a_semaphore needs Kind(Semaphore),
    threads_share_permits_with_leases needs Kind(Permits),
    threads_wait_for_a_latch needs Kind(Latch),
    a_thread_unlocks_the_detached_side_that_it_names needs Kind(Read) Kind(Write),
    blocking_waits_can_be_interrupted needs Kind(Permits) Kind(Semaphore) Kind(Latch),
];

/// Runs a blocking body on a thread where blocking is allowed.
async fn on_a_thread(fixture: Fixture, body: impl FnOnce(&Fixture) + Send + 'static) {
    joined(tokio::task::spawn_blocking(move || body(&fixture))).await;
}

/// Probes until the condition is true.
fn until(what: &str, mut probe: impl FnMut() -> bool) {
    let start = Instant::now();
    while !probe() {
        in_time(what, start, ms(20_000));
        std::thread::yield_now();
    }
}

async fn threads_share_a_semaphore(fixture: Fixture) {
    on_a_thread(fixture, |fixture| {
        let semaphore = fixture.blocking_client().semaphore(&fixture.name());
        assert!(
            semaphore.try_set_permits(2).expect("a reply") && !semaphore.try_set_permits(3).expect("a reply")
        );
        let held = semaphore.acquire(2).expect("free");
        assert_eq!((held.count(), held.is_valid(), semaphore.available().unwrap()), (2, true, 0));
        assert!(semaphore.try_acquire(1).expect("a reply").is_busy(), "permits are not reentrant");
        assert!(semaphore.try_acquire_for(1, ms(20)).expect("a reply").is_busy());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| semaphore.acquire(1).expect("acquired").release().expect("held"));
            until("the waiter waits", || semaphore.inspect().expect("a reply").waiting_here == 1);
            let start = Instant::now();
            held.release().expect("held");
            waiter.join().expect("no panic");
            in_time("it is woken", start, PROMPT);
        });
        drop(semaphore.acquire(1).expect("free"));
        until("a drop releases", || semaphore.available().expect("a reply") == 2);
        semaphore.acquire(1).expect("free").detach();
        assert_eq!(semaphore.release(1).expect("a reply"), 2);
        assert_eq!(
            (semaphore.add_permits(-1).unwrap(), semaphore.drain().unwrap(), semaphore.delete().unwrap()),
            (1, 1, true)
        );
    })
    .await;
}

async fn a_thread_unlocks_the_detached_side_that_it_names(fixture: Fixture) {
    on_a_thread(fixture, |fixture| {
        let lock = fixture.blocking_client().read_write_lock(&fixture.name());
        let (reader, writer) = (lock.reader(), lock.writer());
        writer.lock().expect("free").detach();
        assert!(matches!(reader.unlock(), Err(Error::NotHeld { .. })), "it holds the other side");
        reader.lock().expect("its writer may read").detach();
        writer.unlock().expect("held");
        assert!(reader.is_locked().expect("a reply") && !writer.is_locked().expect("a reply"));
        assert!(matches!(writer.unlock(), Err(Error::NotHeld { .. })), "released before");
        reader.unlock().expect("held");
        assert!(!reader.is_locked().expect("a reply"));
    })
    .await;
}

async fn threads_share_permits_with_leases(fixture: Fixture) {
    on_a_thread(fixture, |fixture| {
        let semaphore = fixture.blocking_client().permit_semaphore(&fixture.name());
        assert!(semaphore.try_set_permits(1).expect("a reply"));
        let short = semaphore.with_lease(ms(200)).acquire(1).expect("free");
        assert_eq!(short.ids().len(), 1);
        let next =
            semaphore.try_acquire_for(1, ms(2_000)).expect("a reply").acquired().expect("the lease ended");
        assert!(!short.is_valid());
        short.wait_lost();
        assert!(matches!(short.release(), Err(Error::Lost { .. })));
        assert_eq!((semaphore.set_permits(3).unwrap(), semaphore.add_permits(1).unwrap()), (2, 3));
        next.release().expect("held");
        assert_eq!((semaphore.available().unwrap(), semaphore.inspect().unwrap().holders.len()), (4, 0));
        assert!(semaphore.try_acquire(5).expect("a reply").is_busy());
        assert!(semaphore.delete().expect("a reply"));
    })
    .await;
}

async fn threads_wait_for_a_latch(fixture: Fixture) {
    on_a_thread(fixture, |fixture| {
        let latch = fixture.blocking_client().latch(&fixture.name());
        assert!(latch.try_set_count(2).expect("a reply"));
        assert!(!latch.wait_for(ms(20)).expect("a reply"));
        std::thread::scope(|scope| {
            let waiters = [
                scope.spawn(|| latch.wait()),
                scope.spawn(|| latch.wait_for(ms(5_000)).map(|open| assert!(open))),
            ];
            until("the threads wait", || latch.inspect().expect("a reply").waiting_here == 2);
            assert_eq!((latch.count_down().unwrap(), latch.count().unwrap()), (1, 1));
            assert_eq!(latch.count_down().expect("a reply"), 0);
            for waiter in waiters {
                waiter.join().expect("no panic").expect("it opened");
            }
        });
        assert!(!latch.delete().expect("a reply"));
    })
    .await;
}

async fn blocking_waits_can_be_interrupted(fixture: Fixture) {
    on_a_thread(fixture, |fixture| {
        let client = fixture.blocking_client();
        let interrupt = Interrupt::new();
        let (semaphore, permits, latch) = (
            client.semaphore(&fixture.name()),
            client.permit_semaphore(&fixture.name()),
            client.latch(&fixture.name()),
        );
        assert!(latch.try_set_count(1).expect("a reply"));
        std::thread::scope(|scope| {
            let waiters = [
                scope.spawn(|| semaphore.interruptible(&interrupt).acquire(1).map(drop)),
                scope.spawn(|| permits.interruptible(&interrupt).acquire(1).map(drop)),
                scope.spawn(|| latch.interruptible(&interrupt).wait()),
            ];
            until("the threads wait", || {
                let waiting = [semaphore.inspect(), permits.inspect(), latch.inspect()];
                waiting.into_iter().all(|seen| seen.expect("a reply").waiting_here == 1)
            });
            interrupt.interrupt();
            for waiter in waiters {
                let outcome = waiter.join().expect("no panic");
                assert!(matches!(outcome, Err(Error::Interrupted { .. })), "{outcome:?}");
            }
        });
        // A request in flight counts as waiting until its reply.
        until("no thread waits", || {
            let waiting = [semaphore.inspect(), permits.inspect(), latch.inspect()];
            waiting.into_iter().all(|seen| seen.expect("a reply").waiting_here == 0)
        });
        assert!(semaphore.try_set_permits(1).expect("a reply"), "the interrupted waits changed nothing");
        semaphore.acquire(1).expect("free").release().expect("held");
    })
    .await;
}
