//! Retries after failures: the pauses, and the rules for how long.

use std::time::Duration;

use turnlock_core::{Backoff, LockName, Moment};

use super::request::WaitLimit;
use crate::clock;
use crate::error::{Error, IntoError};
use turnlock_store::Failure;

/// Pauses before `failure` is retried. Returns `false` if it cannot be retried, or `end` has passed.
pub(super) async fn pause_until(end: Moment, failure: &Failure, backoff: &mut Backoff) -> bool {
    let rest = end.since(clock::now());
    let may_retry = failure.is_retryable() && !rest.is_zero();
    if may_retry {
        tokio::time::sleep(backoff.pause(fastrand::f64()).min(rest)).await;
    }
    may_retry
}

/// Executes `step` and, if its failure can be retried and `may_repeat`, once more.
pub(super) async fn retry_once<T, F: Future<Output = Result<T, Failure>>>(
    step: impl Fn() -> F,
    may_repeat: impl FnOnce(&Failure) -> bool,
) -> Result<T, Failure> {
    match step().await {
        Err(failure) if failure.is_retryable() && may_repeat(&failure) => step().await,
        outcome => outcome,
    }
}

/// Consecutive failures, and how long they are retried.
///
/// The time counts from the send of the first failed request, and ends with the caller's wait at the latest.
pub(super) struct RetryState {
    retry_for: Duration,
    wait_limit: WaitLimit,
    /// The response time-out of a request.
    limit: Duration,
    backoff: Backoff,
    /// The send time of the first failed request, and the last failure.
    failing: Option<Box<(Moment, Failure)>>,
}

impl RetryState {
    pub(super) fn new(retry_for: Duration, wait_limit: WaitLimit, limit: Duration) -> Self {
        Self { retry_for, wait_limit, limit, backoff: Backoff::default(), failing: None }
    }

    /// Adopts the failures of earlier waiters of the same queue, unless there are own ones.
    pub(super) fn inherit(&mut self, since: Moment, failure: Failure) {
        self.failing.get_or_insert_with(|| Box::new((since, failure)));
    }

    /// Returns `true` if requests have failed for too long to send another one.
    pub(super) fn is_exhausted(&self) -> bool {
        self.failing.as_ref().is_some_and(|failing| clock::now() >= self.retry_until(failing.0))
    }

    /// Returns `true` if the last request failed.
    pub(super) fn is_failing(&self) -> bool {
        self.failing.is_some()
    }

    fn retry_until(&self, since: Moment) -> Moment {
        (since + self.retry_for).min(self.wait_limit.end())
    }

    /// Forgets the failures: the store has replied.
    pub(super) fn reset(&mut self) {
        self.failing = None;
        self.backoff = Backoff::default();
    }

    /// Pauses before the next try, within the caller's wait. Returns the failure if there is no next try.
    ///
    /// `sent` is when the failed request was sent.
    pub(super) async fn pause(&mut self, failure: Failure, sent: Moment) -> Result<(), Failure> {
        let Some(pause) = self.pause_after(&failure, sent) else { return Err(failure) };
        tokio::time::sleep(pause.min(self.wait_limit.end().since(clock::now()))).await;
        Ok(())
    }

    fn pause_after(&mut self, failure: &Failure, sent: Moment) -> Option<Duration> {
        let now = clock::now();
        // A first quick failure may only mean that an idle connection has died, so it is always retried. A
        // grant that stands got its reply, so it is no such failure.
        let is_first_quick_failure =
            self.failing.is_none() && !failure.took_effect && now < sent + self.limit;
        let since = self.failing.take().map_or(sent, |failing| failing.0);
        let may_retry = is_first_quick_failure || now < self.retry_until(since);
        if !failure.is_retryable() || !may_retry {
            return None;
        }
        self.failing = Some(Box::new((since, failure.clone())));
        Some(self.backoff.pause(fastrand::f64()))
    }

    /// Returns the last failure, if the last request failed.
    pub(super) fn failure(&self) -> Option<Failure> {
        self.failing.as_ref().map(|failing| failing.1.clone())
    }

    /// Returns the last failure as an error, if the last request failed. A failure is not a refusal.
    pub(super) fn error(&self, name: &LockName) -> Option<Error> {
        let (_, failure) = self.failing.as_deref()?;
        Some(failure.clone().into_error(|| format!("lock {:?}", name.as_str())))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::super::request::time_out;
    use super::*;
    use turnlock_store::FailureKind;

    fn unavailable(text: &str) -> Failure {
        Failure::refused(FailureKind::Unavailable(time_out(text)))
    }

    #[tokio::test]
    async fn a_request_is_retried_once_if_that_can_help() {
        let sent = async |first: Failure, may_repeat: bool| {
            let sent = Cell::new(0);
            let step = || {
                sent.set(sent.get() + 1);
                let failure = first.clone();
                async move { Err::<(), _>(failure) }
            };
            retry_once(step, |_| may_repeat).await.expect_err("it always fails");
            sent.get()
        };
        assert_eq!(sent(unavailable("down"), true).await, 2);
        assert_eq!(sent(unavailable("down"), false).await, 1);
        assert_eq!(sent(Failure::refused(FailureKind::Unsupported("no".to_owned())), true).await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_pause_ends_with_the_time_for_retries() {
        let mut backoff = Backoff::new(Duration::from_secs(60), Duration::from_secs(60));
        let end = clock::now() + Duration::from_millis(3);
        let started = tokio::time::Instant::now();
        // No time is left if the test was delayed.
        let _ = pause_until(end, &unavailable("down"), &mut backoff).await;
        assert!(started.elapsed() <= Duration::from_millis(5), "{:?}", started.elapsed());
        assert!(!pause_until(Moment::from_micros(0), &unavailable("down"), &mut backoff).await);
        let refused = Failure::refused(FailureKind::Unsupported("no".to_owned()));
        assert!(!pause_until(Moment::NEVER, &refused, &mut backoff).await);
    }

    #[test]
    fn a_first_quick_failure_is_retried_even_without_time() {
        let limit = Duration::from_secs(60);
        let mut state = RetryState::new(Duration::ZERO, WaitLimit::Endless, limit);
        assert!(state.pause_after(&unavailable("down"), clock::now()).is_some());
        assert!(state.is_failing() && state.is_exhausted());
        assert_eq!(state.pause_after(&unavailable("down"), clock::now()), None);
    }
}
