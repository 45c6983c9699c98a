//! The blocking interface: the thread is the owner.

use std::sync::Barrier;
use std::time::Instant;

use turnlock::Error;
use turnlock::blocking::Interrupt;
use turnlock_testkit::in_time;

use crate::rig::{PROMPT, Rig, joined, ms};
use crate::{Case, cases};

pub(super) const CASES: &[Case] = cases![
    a_thread_holds_twice_and_others_wait,
    a_wait_can_be_interrupted_from_another_thread,
    what_a_thread_keeps_it_unlocks_later,
    a_thread_that_ends_gives_back_what_it_kept,
    the_rest_of_the_blocking_interface,
    a_blocking_client_may_go_before_its_guards,
];

/// Runs a body that blocks, on a thread where that is allowed.
async fn on_a_thread(rig: Rig, body: impl FnOnce(&Rig) + Send + 'static) {
    joined(tokio::task::spawn_blocking(move || body(&rig))).await;
}

async fn a_thread_holds_twice_and_others_wait(rig: Rig) {
    on_a_thread(rig, |rig| {
        let lock = rig.blocking_client().lock(&rig.name());
        let outer = lock.lock().expect("free");
        let inner = lock.try_lock().expect("an answer").expect("mine already");
        assert_eq!((lock.hold_count().unwrap(), lock.is_held_by_current_thread().unwrap()), (2, true));
        // One who only tries is counted as waiting, too, until it has its answer.
        let has_tried = Barrier::new(2);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let tried = lock.try_lock().expect("an answer");
                has_tried.wait();
                assert!(tried.is_none());
                assert!(!lock.is_held_by_current_thread().expect("an answer"));
                lock.lock().expect("a turn")
            });
            has_tried.wait();
            while lock.inspect().expect("an answer").waiting_here == 0 {
                std::thread::yield_now();
            }
            inner.unlock().expect("held");
            assert!(lock.is_locked().expect("an answer"), "one hold is left");
            assert!(!waiter.is_finished());
            outer.unlock().expect("held");
            waiter.join().expect("no panic").unlock().expect("held");
        });
        assert!(!lock.is_locked().expect("an answer"));
    })
    .await;
}

async fn a_wait_can_be_interrupted_from_another_thread(rig: Rig) {
    on_a_thread(rig, |rig| {
        let lock = rig.blocking_client().lock(&rig.name());
        let held = lock.lock().expect("free");
        let interrupt = Interrupt::new();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| lock.interruptible(&interrupt).lock());
            while lock.inspect().expect("an answer").waiting_here == 0 {
                std::thread::yield_now();
            }
            let start = Instant::now();
            interrupt.interrupt();
            let outcome = waiter.join().expect("no panic");
            assert!(matches!(outcome, Err(Error::Interrupted { .. })));
            in_time("it is interrupted", start, PROMPT);
        });
        // A place in a queue on the store is given up in the background.
        let asked = Instant::now();
        while lock.inspect().expect("an answer").waiting_here > 0 {
            in_time("it has left the queue", asked, PROMPT);
            std::thread::yield_now();
        }
        held.unlock().expect("held");
        assert!(
            matches!(lock.interruptible(&interrupt).lock(), Err(Error::Interrupted { .. })),
            "still raised"
        );
        interrupt.clear();
        lock.interruptible(&interrupt).lock().expect("free").unlock().expect("held");
    })
    .await;
}

async fn what_a_thread_keeps_it_unlocks_later(rig: Rig) {
    on_a_thread(rig, |rig| {
        let lock = rig.blocking_client().lock(&rig.name());
        assert!(matches!(lock.unlock(), Err(Error::NotHeld { .. })));
        lock.lock().expect("free").keep();
        lock.lock().expect("mine already").keep();
        std::thread::scope(|scope| {
            let other = scope.spawn(|| lock.unlock());
            assert!(matches!(other.join().expect("no panic"), Err(Error::NotHeld { .. })));
        });
        lock.unlock().expect("held");
        assert!(lock.is_held_by_current_thread().expect("an answer"));
        lock.unlock().expect("held");
        assert!(!lock.is_locked().expect("an answer"));
        lock.lease(ms(60)).lock().expect("free").keep();
        while lock.is_locked().expect("an answer") {
            std::thread::yield_now();
        }
        assert!(matches!(lock.unlock(), Err(Error::Lost { .. })));
    })
    .await;
}

async fn a_thread_that_ends_gives_back_what_it_kept(rig: Rig) {
    on_a_thread(rig, |rig| {
        let lock = rig.blocking_client().lock(&rig.name());
        let other = lock.clone();
        std::thread::spawn(move || other.lock().expect("free").keep()).join().expect("no panic");
        assert!(lock.try_lock_for(PROMPT).expect("an answer").is_some());
    })
    .await;
}

async fn the_rest_of_the_blocking_interface(rig: Rig) {
    on_a_thread(rig, |rig| {
        let client = rig.blocking_client();
        let lock = client.lock(&rig.name());
        assert!(lock.run(turnlock::blocking::Guard::is_valid).expect("a turn"));
        let held = lock.lease(ms(5_000)).lock().expect("free");
        assert!(lock.remaining().expect("an answer").expect("a lease") > ms(4_000));
        assert!(held.valid_until() > Instant::now() + ms(4_000));
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                lock.try_run_for(ms(20), |_| panic!("it ran")).map(|ran: Option<()>| ran.is_some())
            });
            assert!(!other.join().expect("no panic").expect("an answer"));
        });
        let inner = held.reenter().expect("held");
        assert_eq!((inner.hold_count(), inner.name(), inner.owner_id()), (2, lock.name(), held.owner_id()));
        assert!(lock.force_unlock().expect("an answer"));
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

async fn a_blocking_client_may_go_before_its_guards(rig: Rig) {
    on_a_thread(rig, |rig| {
        let name = rig.name();
        let guard = rig.blocking_client().lock(&name).lock().expect("free");
        assert!(guard.is_valid());
        drop(guard);
        let other = rig.blocking_client().lock(&name);
        assert!(
            other.try_lock_for(PROMPT).expect("an answer").is_some(),
            "its thread did the release and then ended"
        );
    })
    .await;
}
