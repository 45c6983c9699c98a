//! Retries after failures: one loop, and the rules for how long.

use std::time::Duration;

use turnlock_core::{Backoff, LockName, Moment};

use super::request::WaitLimit;
use crate::clock;
use crate::error::{Error, IntoError};
use turnlock_store::Failure;

/// Repeats `attempt` until it succeeds, or until `pause_after` returns no pause.
///
/// `attempt` gets the failure of the attempt before it. `pause_after` gets a failure and the time at which that
/// attempt began. Returns the last failure if there is no further attempt.
///
/// # Cancel safety
///
/// As `attempt`: a request that must be completed needs a [`RunToCompletion`](super::RunToCompletion) around the
/// whole.
pub(super) async fn retry<T, E, F: Future<Output = Result<T, E>>>(
    mut attempt: impl FnMut(Option<E>) -> F,
    mut pause_after: impl FnMut(&E, Moment) -> Option<Duration>,
) -> Result<T, E> {
    let mut last = None;
    loop {
        let began = clock::now();
        let failure = match attempt(last.take()).await {
            Err(failure) => failure,
            success => return success,
        };
        let Some(pause) = pause_after(&failure, began) else { return Err(failure) };
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        last = Some(failure);
    }
}

/// Retries until the attempt succeeds, with the pauses of `backoff`.
pub(super) fn without_end<E>(mut backoff: Backoff) -> impl FnMut(&E, Moment) -> Option<Duration> {
    move |_, _| Some(backoff.pause(fastrand::f64()))
}

/// Retries what can be retried until `end`, with growing pauses.
pub(super) fn until(end: impl Fn() -> Moment) -> impl FnMut(&Failure, Moment) -> Option<Duration> {
    let mut backoff = Backoff::default();
    move |failure, _| {
        let rest = end().since(clock::now());
        let may_retry = failure.is_retryable() && !rest.is_zero();
        may_retry.then(|| backoff.pause(fastrand::f64()).min(rest))
    }
}

/// Retries once, at once, if the failure can be retried and `may_repeat`.
pub(super) fn once(
    may_repeat: impl Fn(&Failure) -> bool,
) -> impl FnMut(&Failure, Moment) -> Option<Duration> {
    let mut is_first = true;
    move |failure, _| {
        let may_retry = std::mem::take(&mut is_first) && failure.is_retryable() && may_repeat(failure);
        may_retry.then_some(Duration::ZERO)
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
    failing: Option<(Moment, Failure)>,
}

impl RetryState {
    pub(super) fn new(retry_for: Duration, wait_limit: WaitLimit, limit: Duration) -> Self {
        Self { retry_for, wait_limit, limit, backoff: Backoff::default(), failing: None }
    }

    /// Adopts the failures of earlier waiters of the same queue, unless there are own ones.
    pub(super) fn inherit(&mut self, since: Moment, failure: Failure) {
        self.failing.get_or_insert((since, failure));
    }

    /// Returns `true` if requests have failed for too long to send another one.
    pub(super) fn is_exhausted(&self) -> bool {
        self.failing.as_ref().is_some_and(|(since, _)| clock::now() >= self.retry_until(*since))
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

    /// Returns the pause before the next try, or `None` if there is none.
    ///
    /// `sent` is when the failed request was sent.
    pub(super) fn pause_after(&mut self, failure: &Failure, sent: Moment) -> Option<Duration> {
        let now = clock::now();
        // A first quick failure may only mean that an idle connection has died, so it is always retried. A
        // grant that stands got its reply, so it is no such failure.
        let is_first_quick_failure =
            self.failing.is_none() && !failure.took_effect && now < sent + self.limit;
        let since = self.failing.take().map_or(sent, |(since, _)| since);
        let may_retry = is_first_quick_failure || now < self.retry_until(since);
        if !failure.is_retryable() || !may_retry {
            return None;
        }
        self.failing = Some((since, failure.clone()));
        Some(self.backoff.pause(fastrand::f64()))
    }

    /// Returns the last failure as an error, if the last request failed. A failure is not a refusal.
    pub(super) fn error(&self, name: &LockName) -> Option<Error> {
        let (_, failure) = self.failing.as_ref()?;
        Some(failure.clone().into_error(|| format!("lock {:?}", name.as_str())))
    }
}

#[cfg(test)]
mod tests {
    use super::super::request::time_out;
    use super::*;
    use turnlock_store::FailureKind;

    fn unavailable(text: &str) -> Failure {
        Failure::refused(FailureKind::Unavailable(time_out(text)))
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_gets_the_failure_before_it() {
        let mut seen = Vec::new();
        let attempt = |last: Option<usize>| {
            seen.push(last);
            let number = seen.len();
            async move { if number < 3 { Err(number) } else { Ok("done") } }
        };
        assert_eq!(retry(attempt, without_end(Backoff::default())).await, Ok("done"));
        assert_eq!(seen, [None, Some(1), Some(2)]);
    }

    #[tokio::test]
    async fn a_request_is_retried_once_if_that_can_help() {
        let sent = async |first: Failure, may_repeat: bool| {
            let mut sent = 0;
            let attempt = |_| {
                sent += 1;
                let failure = first.clone();
                async move { Err::<(), _>(failure) }
            };
            retry(attempt, once(|_| may_repeat)).await.expect_err("it always fails");
            sent
        };
        assert_eq!(sent(unavailable("down"), true).await, 2);
        assert_eq!(sent(unavailable("down"), false).await, 1);
        assert_eq!(sent(Failure::refused(FailureKind::Unsupported("no".to_owned())), true).await, 1);
    }

    #[test]
    fn the_last_pause_ends_with_the_time_for_retries() {
        let end = clock::now() + Duration::from_millis(3);
        let mut pause_after = until(|| end);
        let pause = pause_after(&unavailable("down"), clock::now());
        assert!(pause.is_none_or(|pause| pause <= Duration::from_millis(3)), "{pause:?}");
        let mut pause_after = until(|| Moment::from_micros(0));
        assert_eq!(pause_after(&unavailable("down"), clock::now()), None);
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
