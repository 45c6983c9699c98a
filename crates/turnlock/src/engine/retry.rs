use std::time::Duration;

use turnlock_core::{Backoff, Moment};

use super::acquire::WaitLimit;
use crate::backend::Failure;
use crate::clock;
use crate::error::Error;

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

    /// Returns the pause before the next try, or the error if there is none.
    ///
    /// `sent` is when the failed request was sent. `what` describes it for the error.
    pub(super) fn pause_after(
        &mut self,
        failure: Failure,
        sent: Moment,
        what: impl FnOnce() -> String,
    ) -> Result<Duration, Error> {
        let now = clock::now();
        // A first quick failure may only mean that an idle connection has died, so it is always retried. A
        // grant that stands got its reply, so it is no such failure.
        let is_first_quick_failure =
            self.failing.is_none() && !failure.took_effect && now < sent + self.limit;
        let since = self.failing.take().map_or(sent, |(since, _)| since);
        let may_retry = is_first_quick_failure || now < self.retry_until(since);
        if !failure.is_retryable() || !may_retry {
            return Err(failure.into_error(what));
        }
        self.failing = Some((since, failure));
        Ok(self.backoff.pause(fastrand::f64()))
    }

    /// Returns the last failure as an error, if the last request failed. A failure is not a refusal.
    pub(super) fn into_error(self, name: &turnlock_core::LockName) -> Option<Error> {
        self.failing.map(|(_, failure)| failure.into_error(|| format!("lock {:?}", name.as_str())))
    }
}
