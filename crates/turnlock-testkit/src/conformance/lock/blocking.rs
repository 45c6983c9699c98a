//! The blocking interface: the thread is the owner.

use std::sync::Barrier;
use std::time::Instant;

use crate::conformance::{Case, Fixture, PROMPT, cases, joined, ms};
use crate::in_time;
use turnlock::Error;
use turnlock::blocking::Interrupt;

pub(super) const CASES: &[Case] = cases![
    a_thread_can_lock_twice_while_others_wait,
    a_wait_can_be_interrupted_from_another_thread,
    a_thread_unlocks_a_detached_hold_later,
    a_thread_that_ends_releases_its_detached_holds,
    the_rest_of_the_blocking_interface,
    a_blocking_client_may_be_dropped_before_its_guards,
];

/// Runs a blocking body on a thread where blocking is allowed.
async fn on_a_thread(fixture: Fixture, body: impl FnOnce(&Fixture) + Send + 'static) {
    joined(tokio::task::spawn_blocking(move || body(&fixture))).await;
}

async fn a_thread_can_lock_twice_while_others_wait(fixture: Fixture) {
    on_a_thread(fixture, |fixture| {
        let lock = fixture.blocking_client().lock(&fixture.name());
        let outer = lock.lock().expect("free");
        let inner = lock.try_lock().expect("a reply").acquired().expect("the same thread");
        assert_eq!((lock.hold_count().unwrap(), lock.is_held_by_current_thread().unwrap()), (2, true));
        // A try_lock also counts as waiting until its reply.
        let has_tried = Barrier::new(2);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let tried = lock.try_lock().expect("a reply");
                has_tried.wait();
                assert!(tried.is_busy());
                assert!(!lock.is_held_by_current_thread().expect("a reply"));
                lock.lock().expect("acquired")
            });
            has_tried.wait();
            while lock.inspect().expect("a reply").waiting_here == 0 {
                std::thread::yield_now();
            }
            inner.unlock().expect("held");
            assert!(lock.is_locked().expect("a reply"), "one hold is left");
            assert!(!waiter.is_finished());
            outer.unlock().expect("held");
            waiter.join().expect("no panic").unlock().expect("held");
        });
        assert!(!lock.is_locked().expect("a reply"));
    })
    .await;
}

async fn a_wait_can_be_interrupted_from_another_thread(fixture: Fixture) {
    on_a_thread(fixture, |fixture| {
        let lock = fixture.blocking_client().lock(&fixture.name());
        let held = lock.lock().expect("free");
        let interrupt = Interrupt::new();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| lock.interruptible(&interrupt).lock());
            while lock.inspect().expect("a reply").waiting_here == 0 {
                std::thread::yield_now();
            }
            let start = Instant::now();
            interrupt.interrupt();
            let outcome = waiter.join().expect("no panic");
            assert!(matches!(outcome, Err(Error::Interrupted { .. })));
            in_time("it is interrupted", start, PROMPT);
        });
        // An entry in a queue of the store is removed in the background.
        let start = Instant::now();
        while lock.inspect().expect("a reply").waiting_here > 0 {
            in_time("it has left the queue", start, PROMPT);
            std::thread::yield_now();
        }
        held.unlock().expect("held");
        assert!(
            matches!(lock.interruptible(&interrupt).lock(), Err(Error::Interrupted { .. })),
            "the interrupt is still set"
        );
        interrupt.clear();
        lock.interruptible(&interrupt).lock().expect("free").unlock().expect("held");
    })
    .await;
}

async fn a_thread_unlocks_a_detached_hold_later(fixture: Fixture) {
    on_a_thread(fixture, |fixture| {
        let lock = fixture.blocking_client().lock(&fixture.name());
        assert!(matches!(lock.unlock(), Err(Error::NotHeld { .. })));
        lock.lock().expect("free").detach();
        lock.lock().expect("the same thread").detach();
        std::thread::scope(|scope| {
            let other = scope.spawn(|| lock.unlock());
            assert!(matches!(other.join().expect("no panic"), Err(Error::NotHeld { .. })));
        });
        lock.unlock().expect("held");
        assert!(lock.is_held_by_current_thread().expect("a reply"));
        lock.unlock().expect("held");
        assert!(!lock.is_locked().expect("a reply"));
        lock.with_lease(ms(60)).lock().expect("free").detach();
        while lock.is_locked().expect("a reply") {
            std::thread::yield_now();
        }
        assert!(matches!(lock.unlock(), Err(Error::Lost { .. })));
    })
    .await;
}

async fn a_thread_that_ends_releases_its_detached_holds(fixture: Fixture) {
    on_a_thread(fixture, |fixture| {
        let lock = fixture.blocking_client().lock(&fixture.name());
        let other = lock.clone();
        std::thread::spawn(move || other.lock().expect("free").detach()).join().expect("no panic");
        assert!(lock.try_lock_for(PROMPT).expect("a reply").acquired().is_some());
    })
    .await;
}

async fn the_rest_of_the_blocking_interface(fixture: Fixture) {
    on_a_thread(fixture, |fixture| {
        let client = fixture.blocking_client();
        let lock = client.lock(&fixture.name());
        assert!(lock.run(turnlock::blocking::Guard::is_valid).expect("acquired"));
        let held = lock.with_lease(ms(5_000)).lock().expect("free");
        assert!(lock.remaining().expect("a reply").expect("a lease") > ms(4_000));
        assert!(held.valid_until() > Instant::now() + ms(4_000));
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                lock.try_run_for(ms(20), |_| panic!("the body ran")).map(|ran: Option<()>| ran.is_some())
            });
            assert!(!other.join().expect("no panic").expect("a reply"));
        });
        let inner = held.reenter().expect("held");
        assert_eq!((inner.hold_count(), inner.name(), inner.owner_id()), (2, lock.name(), held.owner_id()));
        assert!(lock.force_unlock().expect("a reply"));
        held.wait_lost();
        assert!(matches!(held.unlock(), Err(Error::Lost { .. })));
        assert!(matches!(
            lock.run(|guard| {
                lock.force_unlock().unwrap();
                guard.wait_lost();
            }),
            Err(Error::Lost { .. })
        ));
        drop(inner);
        assert!(client.shutdown(PROMPT).is_clean());
        assert!(matches!(lock.lock(), Err(Error::ShuttingDown)));
    })
    .await;
}

async fn a_blocking_client_may_be_dropped_before_its_guards(fixture: Fixture) {
    on_a_thread(fixture, |fixture| {
        let name = fixture.name();
        let guard = fixture.blocking_client().lock(&name).lock().expect("free");
        assert!(guard.is_valid());
        drop(guard);
        let other = fixture.blocking_client().lock(&name);
        assert!(
            other.try_lock_for(PROMPT).expect("a reply").acquired().is_some(),
            "the client's thread releases and then ends"
        );
    })
    .await;
}
