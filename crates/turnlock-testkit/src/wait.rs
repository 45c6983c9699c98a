//! Waits with a time limit and a description.

use std::fmt;
use std::panic::Location;
use std::time::{Duration, Instant};

/// How long [`eventually`] sleeps between two probes.
const POLL: Duration = Duration::from_millis(5);

/// Calls `probe` every 5 ms, at least once, until it returns `true`.
///
/// Panics with [`TimedOut`] after `limit`, even if a probe is still running. The message has `what`, the
/// limit and the location of the call.
#[track_caller]
pub fn eventually<F, Fut>(what: &str, limit: Duration, mut probe: F) -> impl Future<Output = ()>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = bool>,
{
    eventually_some(what, limit, move || {
        let probing = probe();
        async { probing.await.then_some(()) }
    })
}

/// Calls `probe` like [`eventually`] until it returns a value, and returns that.
#[track_caller]
pub fn eventually_some<F, Fut, T>(what: &str, limit: Duration, mut probe: F) -> impl Future<Output = T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Option<T>>,
{
    // Not an `async fn`: these do not have the location of their caller.
    let caller = Location::caller();
    async move {
        let began = Instant::now();
        let found = tokio::time::timeout(limit, async {
            loop {
                if let Some(found) = probe().await {
                    return found;
                }
                tokio::time::sleep(POLL).await;
            }
        });
        found.await.unwrap_or_else(|_| {
            TimedOut::fail(began, limit, &format!("{what}: not true within {limit:?} (called at {caller})"))
        })
    }
}

/// Runs `future` and returns its output.
///
/// If it is not complete after `limit`, drops it and panics with [`TimedOut`]. The message has `what`, the
/// limit and the location of the call.
#[track_caller]
pub fn within<F: Future>(limit: Duration, what: &str, future: F) -> impl Future<Output = F::Output> {
    let caller = Location::caller();
    async move {
        let began = Instant::now();
        let output = tokio::time::timeout(limit, future).await;
        output.unwrap_or_else(|_| {
            TimedOut::fail(
                began,
                limit,
                &format!("{what}: not complete within {limit:?} (called at {caller})"),
            )
        })
    }
}

/// Asserts that at most `limit` has passed since `began`; otherwise panics with [`TimedOut`].
#[track_caller]
pub fn in_time(what: &str, began: Instant, limit: Duration) {
    let took = began.elapsed();
    if took > limit {
        let caller = Location::caller();
        TimedOut::fail(
            began,
            limit,
            &format!("{what}: took {took:?}, not within {limit:?} (called at {caller})"),
        );
    }
}

/// The panic payload of a wait that exceeded its limit.
///
/// Only this panic can be caused by a stall of the machine. Any other panic of a case is final.
#[derive(Debug)]
pub struct TimedOut {
    message: String,
    began: Instant,
    limit: Duration,
}

impl TimedOut {
    /// Prints the message and panics with it.
    pub(crate) fn fail(began: Instant, limit: Duration, message: &str) -> ! {
        // The default panic hook prints only strings.
        eprintln!("{message}");
        std::panic::resume_unwind(Box::new(Self { message: message.to_owned(), began, limit }));
    }

    /// Returns when the wait began.
    pub(crate) fn began(&self) -> Instant {
        self.began
    }

    /// Returns `true` if a stall explains the time-out: at least a quarter of the limit.
    pub(crate) fn is_explained_by(&self, stalled: Duration) -> bool {
        stalled >= self.limit / 4
    }
}

impl fmt::Display for TimedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
