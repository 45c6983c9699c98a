//! A timer that needs no runtime.
//!
//! A guard may be awaited on another runtime than its client's, on one without timers, or on none, and the
//! client's runtime may be gone or idle. The end of a lease must be noticed all the same. So one thread per
//! process serves all deadlines. It starts with the first deadline and ends when there are none.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use turnlock_core::Moment;
use turnlock_core::renewal::{RenewalSchedule, ScheduleKey};

use crate::clock;

/// The longest sleep of the timer thread, the watchdog and a waiter in front.
///
/// After a suspend of the machine each of them reads the clock within this time.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// A future that is ready once `at` has passed, on any executor.
#[derive(Debug)]
pub(crate) struct Deadline {
    at: Moment,
    /// The entry in the timer's schedule, and the waker that it wakes.
    planned: Option<(ScheduleKey, Waker)>,
}

impl Deadline {
    pub(crate) fn new(at: Moment) -> Self {
        Self { at, planned: None }
    }
}

impl Future for Deadline {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if clock::now() >= self.at {
            return Poll::Ready(());
        }
        let waker = context.waker();
        if self.planned.as_ref().is_none_or(|(_, planned)| !planned.will_wake(waker)) {
            if let Some((appointment, _)) = self.planned.take() {
                TIMER.cancel(appointment);
            }
            let planned = TIMER.plan(self.at, waker.clone());
            self.planned = planned.map(|appointment| (appointment, waker.clone()));
        }
        Poll::Pending
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        if let Some((appointment, _)) = self.planned.take() {
            TIMER.cancel(appointment);
        }
    }
}

static TIMER: LazyLock<Timer> = LazyLock::new(Timer::default);

#[derive(Debug, Default)]
struct Timer {
    state: Mutex<State>,
    /// Notified when a deadline is planned that is earlier than the thread's next wake-up.
    sooner: Condvar,
}

#[derive(Debug, Default)]
struct State {
    schedule: RenewalSchedule<Waker>,
    is_running: bool,
    /// When the thread wakes up without a notification.
    wakes_at: Moment,
}

impl Timer {
    /// Removes an entry. The waker is dropped after the mutex is unlocked: it may own a task that has
    /// deadlines.
    fn cancel(&self, appointment: ScheduleKey) {
        let waker = self.state.lock().schedule.cancel(appointment);
        drop(waker);
    }

    /// Plans to wake `waker` at `at`. Returns `None` if the thread cannot be started; the next poll tries
    /// again.
    fn plan(&'static self, at: Moment, waker: Waker) -> Option<ScheduleKey> {
        let mut state = self.state.lock();
        if !state.is_running {
            let thread = thread::Builder::new().name("turnlock-timer".to_owned()).spawn(|| self.run());
            if let Err(error) = thread {
                tracing::warn!(%error, "timer thread not started, will retry");
                return None;
            }
            state.is_running = true;
            // The thread reads the schedule before its first sleep.
            state.wakes_at = clock::now();
        }
        let appointment = state.schedule.insert(at, waker);
        if at < state.wakes_at {
            self.sooner.notify_one();
        }
        Some(appointment)
    }

    /// The loop of the timer thread.
    fn run(&self) {
        let mut state = self.state.lock();
        loop {
            let now = clock::now();
            let next = state.schedule.next_due().unwrap_or(Moment::NEVER);
            let sleep_for = next.since(now).min(LONGEST_SLEEP);
            state.wakes_at = now + sleep_for;
            self.sooner.wait_for(&mut state, sleep_for);
            let due = state.schedule.take_due(clock::now(), usize::MAX);
            if due.is_empty() && state.schedule.is_empty() {
                state.is_running = false;
                return;
            }
            drop(state);
            for waker in due {
                // A panic in a foreign waker must not stop the other deadlines.
                let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
            }
            state = self.state.lock();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    /// A runtime without timers.
    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
    }

    fn in_ms(millis: u64) -> Moment {
        clock::now() + Duration::from_millis(millis)
    }

    #[test]
    fn a_deadline_needs_no_runtime_and_is_not_early() {
        let (later, sooner) = (Deadline::new(in_ms(60)), Deadline::new(in_ms(20)));
        let ends = (later.at, sooner.at);
        block_on(async {
            // The deadline that was planned last is due first.
            let mut later = later;
            assert!((&mut later).now_or_never().is_none());
            sooner.await;
            assert!(clock::now() >= ends.1);
            later.await;
            assert!(clock::now() >= ends.0);
        });
        block_on(Deadline::new(clock::now()));
    }

    #[test]
    fn the_waker_of_the_latest_poll_is_woken() {
        let mut deadline = Deadline::new(in_ms(50));
        assert!((&mut deadline).now_or_never().is_none(), "polled with a waker that wakes nothing");
        block_on(deadline);
    }

    #[test]
    fn a_dropped_deadline_is_removed_from_the_schedule() {
        let mut deadline = Deadline::new(in_ms(3_600_000));
        assert!((&mut deadline).now_or_never().is_none());
        let appointment = deadline.planned.as_ref().expect("planned").0;
        drop(deadline);
        assert!(TIMER.state.lock().schedule.cancel(appointment).is_none(), "still in the schedule");
    }

    #[test]
    fn a_panicking_waker_does_not_stop_other_deadlines() {
        struct Panics;
        impl std::task::Wake for Panics {
            fn wake(self: std::sync::Arc<Self>) {
                panic!("on purpose");
            }
        }
        let mut deadline = Deadline::new(in_ms(20));
        let waker = Waker::from(std::sync::Arc::new(Panics));
        assert!(deadline.poll_unpin(&mut Context::from_waker(&waker)).is_pending());
        let end = in_ms(40);
        block_on(Deadline::new(end));
        assert!(clock::now() >= end);
    }
}
