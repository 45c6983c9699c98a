//! Waiting for things with a limit and a name.

use std::panic::Location;
use std::time::{Duration, Instant};

use crate::TooSlow;

/// How long [`eventually`] rests between two probes.
const POLL: Duration = Duration::from_millis(5);

/// Probes every 5 ms until `probe` answers true.
///
/// It probes at least once. When `limit` has passed without a true answer (even if a probe is still running), it
/// panics with [`TooSlow`], naming `what`, the limit and the place of the call.
#[track_caller]
pub fn eventually<F, Fut>(what: &str, limit: Duration, mut probe: F) -> impl Future<Output = ()>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = bool>,
{
    // An `async fn` cannot know its caller, and a failure that points into this file would help nobody.
    let caller = Location::caller();
    async move {
        let began = Instant::now();
        let seen = tokio::time::timeout(limit, async {
            while !probe().await {
                tokio::time::sleep(POLL).await;
            }
        });
        if seen.await.is_err() {
            TooSlow::fail(began, limit, &format!("{what}: not so within {limit:?} (asked at {caller})"));
        }
    }
}

/// Runs `future` and gives back its output.
///
/// When it has not finished after `limit`, it is dropped and this panics with [`TooSlow`], naming `what`, the limit and the
/// place of the call.
#[track_caller]
pub fn within<F: Future>(limit: Duration, what: &str, future: F) -> impl Future<Output = F::Output> {
    let caller = Location::caller();
    async move {
        let began = Instant::now();
        let output = tokio::time::timeout(limit, future).await;
        output.unwrap_or_else(|_| {
            TooSlow::fail(began, limit, &format!("{what}: not done within {limit:?} (asked at {caller})"))
        })
    }
}

/// Asserts that something that began then, and is done now, took no longer than `limit`; else it panics with [`TooSlow`].
#[track_caller]
pub fn in_time(what: &str, began: Instant, limit: Duration) {
    let took = began.elapsed();
    if took > limit {
        let caller = Location::caller();
        TooSlow::fail(
            began,
            limit,
            &format!("{what}: after {took:?}, not within {limit:?} (asked at {caller})"),
        );
    }
}
