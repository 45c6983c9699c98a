use std::time::Duration;

use turnlock_core::{Backoff, Moment};

use super::acquire::Patience;
use crate::backend::Failure;
use crate::clock;
use crate::error::Error;

/// Failures in a row, and how long they are borne: for a time from the first of them, within the caller's patience.
pub(super) struct Troubles {
    bearable: Duration,
    patience: Patience,
    backoff: Backoff,
    /// Since when, and the last of them.
    now: Option<(Moment, Failure)>,
}

impl Troubles {
    pub(super) fn new(bearable: Duration, patience: Patience) -> Self {
        Self { bearable, patience, backoff: Backoff::default(), now: None }
    }

    /// The store has answered.
    pub(super) fn are_over(&mut self) {
        self.now = None;
        self.backoff = Backoff::default();
    }

    /// The pause before the next try, or the error if there is to be none; `what` was being done.
    pub(super) fn after(
        &mut self,
        failure: Failure,
        what: impl FnOnce() -> String,
    ) -> Result<Duration, Error> {
        let now = clock::now();
        // The first failure may only mean that a connection has died since it was last used. One that stands was answered.
        let is_first = self.now.is_none() && !failure.stands;
        let since = self.now.take().map_or(now, |(since, _)| since);
        let is_borne = is_first || now < (since + self.bearable).min(self.patience.end());
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
