use std::time::Duration;

use turnlock_core::{Backoff, Moment};

use super::acquire::Patience;
use crate::backend::Failure;
use crate::clock;
use crate::error::Error;

/// Failures in a row, and how long they are borne: for a time from when the first request was sent that failed, within the
/// caller's patience.
pub(super) struct Troubles {
    bearable: Duration,
    patience: Patience,
    /// How long a request waits for its answer.
    limit: Duration,
    backoff: Backoff,
    /// Since when, and the last of them.
    now: Option<(Moment, Failure)>,
}

impl Troubles {
    pub(super) fn new(bearable: Duration, patience: Patience, limit: Duration) -> Self {
        Self { bearable, patience, limit, backoff: Backoff::default(), now: None }
    }

    /// Counts the failures of those who asked before in the same queue, since then.
    pub(super) fn take_over(&mut self, since: Moment, failure: Failure) {
        self.now.get_or_insert((since, failure));
    }

    /// Whether they have lasted too long to ask again.
    pub(super) fn are_unbearable(&self) -> bool {
        self.now.as_ref().is_some_and(|(since, _)| clock::now() >= self.borne_until(*since))
    }

    /// Whether the last thing that happened was a failure.
    pub(super) fn are_there(&self) -> bool {
        self.now.is_some()
    }

    fn borne_until(&self, since: Moment) -> Moment {
        (since + self.bearable).min(self.patience.end())
    }

    /// The store has answered.
    pub(super) fn are_over(&mut self) {
        self.now = None;
        self.backoff = Backoff::default();
    }

    /// The pause before the next try, or the error if there is to be none; `what` was being done, by a request that was sent at
    /// that time.
    pub(super) fn after(
        &mut self,
        failure: Failure,
        sent: Moment,
        what: impl FnOnce() -> String,
    ) -> Result<Duration, Error> {
        let now = clock::now();
        // The first failure may only mean that a connection has died since it was last used, which is known soon. One that stands
        // was answered.
        let is_first = self.now.is_none() && !failure.stands && now < sent + self.limit;
        let since = self.now.take().map_or(sent, |(since, _)| since);
        let is_borne = is_first || now < self.borne_until(since);
        if !failure.is_worth_a_retry() || !is_borne {
            return Err(failure.into_error(what));
        }
        self.now = Some((since, failure));
        Ok(self.backoff.pause(fastrand::f64()))
    }

    /// The failure, if the last thing that happened was one: it is not the same as being refused.
    pub(super) fn last_word(self, name: &turnlock_core::LockName) -> Option<Error> {
        self.now.map(|(_, failure)| failure.into_error(|| format!("lock {:?}", name.as_str())))
    }
}
