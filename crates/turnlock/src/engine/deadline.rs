//! A timer that needs no runtime.
//!
//! A guard may be awaited on another runtime than its client's, on one without timers, or on none; and the client's runtime may
//! be gone or idle. The end of a lease comes all the same. So one thread of the process serves all deadlines. It is started with
//! the first, and ends when there are none.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use turnlock_core::Moment;
use turnlock_core::renewal::{Appointment, RenewalSchedule};

use crate::clock;

/// How long the thread sleeps at the most: after a suspend of the machine it looks at the clock that soon.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// A future that is ready once `at` has come, on any executor.
#[derive(Debug)]
pub(super) struct Deadline {
    at: Moment,
    /// What the thread has been told.
    planned: Option<(Appointment, Waker)>,
}

impl Deadline {
    pub(super) fn new(at: Moment) -> Self {
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
    /// A deadline was planned that comes before the thread would wake.
    sooner: Condvar,
}

#[derive(Debug, Default)]
struct State {
    schedule: RenewalSchedule<Waker>,
    is_running: bool,
    /// When the thread wakes by itself.
    wakes_at: Moment,
}

impl Timer {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a plan back. The waker is dropped after the lock is released: with it may end a task that has deadlines.
    fn cancel(&self, appointment: Appointment) {
        let waker = self.state().schedule.cancel(appointment);
        drop(waker);
    }

    /// Plans to wake `waker` at `at`. `None` when there is no thread to do it: then the next poll tries again.
    fn plan(&'static self, at: Moment, waker: Waker) -> Option<Appointment> {
        let mut state = self.state();
        if !state.is_running {
            let thread = thread::Builder::new().name("turnlock-timer".to_owned()).spawn(|| self.run());
            if let Err(error) = thread {
                tracing::warn!(%error, "the timer thread could not be started");
                return None;
            }
            state.is_running = true;
            // It looks at the schedule before it first sleeps.
            state.wakes_at = clock::now();
        }
        let appointment = state.schedule.plan(at, waker);
        if at < state.wakes_at {
            self.sooner.notify_one();
        }
        Some(appointment)
    }

    /// The thread.
    fn run(&self) {
        let mut state = self.state();
        loop {
            let now = clock::now();
            let next = state.schedule.next_due().unwrap_or(Moment::NEVER);
            let nap = next.since(now).min(LONGEST_SLEEP);
            state.wakes_at = now + nap;
            state = self.sooner.wait_timeout(state, nap).unwrap_or_else(PoisonError::into_inner).0;
            let due = state.schedule.take_due(clock::now());
            if due.is_empty() && state.schedule.is_empty() {
                state.is_running = false;
                return;
            }
            drop(state);
            for waker in due {
                // A foreign executor that panics here must not cost others their deadlines.
                let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
            }
            state = self.state();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

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
    fn a_deadline_comes_without_a_runtime_and_not_too_early() {
        let (later, sooner) = (Deadline::new(in_ms(60)), Deadline::new(in_ms(20)));
        let ends = (later.at, sooner.at);
        block_on(async {
            // The one that was planned last comes first.
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
    fn the_latest_poll_is_woken() {
        let mut deadline = Deadline::new(in_ms(50));
        assert!((&mut deadline).now_or_never().is_none(), "polled with a waker that wakes nothing");
        block_on(deadline);
    }

    #[test]
    fn a_dropped_deadline_wakes_nobody() {
        let mut deadline = Deadline::new(in_ms(3_600_000));
        assert!((&mut deadline).now_or_never().is_none());
        let appointment = deadline.planned.as_ref().expect("planned").0;
        drop(deadline);
        assert!(TIMER.state().schedule.cancel(appointment).is_none(), "it is forgotten");
    }

    #[test]
    fn a_waker_that_panics_costs_nobody_else_a_deadline() {
        struct Panics;
        impl std::task::Wake for Panics {
            fn wake(self: std::sync::Arc<Self>) {
                panic!("on purpose");
            }
        }
        let mut deadline = Deadline::new(in_ms(20));
        let waker = Waker::from(std::sync::Arc::new(Panics));
        assert!(deadline.poll_unpin(&mut Context::from_waker(&waker)).is_pending());
        let start = Instant::now();
        block_on(Deadline::new(in_ms(40)));
        assert!(start.elapsed() >= Duration::from_millis(40));
    }
}
