use std::sync::Arc;

use turnlock_core::hold_state::{Action, Event};
use turnlock_core::planted::Bug;
use turnlock_core::{Kind, LockName, Moment};

use super::engine::Engine;
use super::release::Release;
use super::run_to_completion::RunToCompletion;
use super::state::{Hold, HoldEnd, LeaseMode, ReleaseSpan};
use crate::clock;
use crate::error::Error;

/// What an acquire returns: the hold, with the lease and the token of this grant.
///
/// It counts as one guard of the hold. Dropping it releases that in the background.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) engine: Arc<Engine>,
    pub(crate) hold: Arc<Hold>,
    pub(crate) lease_mode: LeaseMode,
    pub(crate) token: Option<u64>,
    is_released: bool,
}

impl Grant {
    pub(super) fn new(
        engine: &Arc<Engine>,
        hold: Arc<Hold>,
        lease_mode: LeaseMode,
        token: Option<u64>,
    ) -> Self {
        Self { engine: Arc::clone(engine), hold, lease_mode, token, is_released: false }
    }

    /// Leaves the release to the caller.
    pub(crate) fn set_released(&mut self) {
        self.is_released = true;
    }

    /// Releases it, and waits for the confirmation.
    pub(crate) async fn release(mut self) -> Result<(), Error> {
        self.is_released = true;
        let engine = &self.engine;
        engine.on_runtime(engine.release(Arc::clone(&self.hold), self.lease_mode)).await
    }

    /// Drops it without a release. The hold is no longer renewed.
    pub(crate) fn detach(mut self) {
        self.is_released = true;
        self.engine.detach(&self.hold, self.lease_mode);
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        if !self.is_released && !Bug::DropWithoutRelease.is_planted() {
            self.engine.release_in_background(Arc::clone(&self.hold), self.lease_mode);
        }
    }
}

impl Engine {
    /// Releases what one guard holds, and waits for the confirmation.
    ///
    /// When failures have lasted for `retry_for`, returns an error, and the engine goes on in the background.
    pub(crate) async fn release(
        self: &Arc<Self>,
        hold: Arc<Hold>,
        lease_mode: LeaseMode,
    ) -> Result<(), Error> {
        let now = clock::now();
        if self.hand_over(&hold, lease_mode, now) {
            return Ok(());
        }
        let is_last = self.end_guard(&hold, lease_mode, now);
        if self.background.is_closed() {
            // The runtime of the client is gone, and its connections with it.
            if hold.guards() == 0 {
                self.wait_queues.remove_hold(&hold);
            }
            return Err(Error::InDoubt { name: hold.name.to_string(), source: None });
        }
        let span = ReleaseSpan::begin(&hold.name, &hold.owner);
        let release = Release::new(self, hold, is_last, now, now + self.settings.retry_for).with_span(span);
        RunToCompletion::new(&self.background, release).await
    }

    /// Releases what a dropped guard held, in the background.
    fn release_in_background(self: &Arc<Self>, hold: Arc<Hold>, lease_mode: LeaseMode) {
        let now = clock::now();
        if self.hand_over(&hold, lease_mode, now) {
            return;
        }
        let (name, span) = (hold.name.clone(), ReleaseSpan::begin(&hold.name, &hold.owner));
        let is_last = self.end_guard(&hold, lease_mode, now);
        let engine = Arc::clone(self);
        self.background.spawn(async move {
            let release = Release::new(&engine, hold, is_last, clock::now(), Moment::NEVER).with_span(span);
            if let Err(error) = release.await {
                engine.log_failed_release(&name, &error);
            }
        });
    }

    /// Logs that a release in the background was not confirmed until the lease must have ended.
    pub(super) fn log_failed_release(&self, name: &LockName, error: &Error) {
        let text = error.with_causes();
        match error {
            // Logged when it was noticed.
            Error::Lost { .. } => {}
            // The outage is logged, with the number of failures, and the lease ends. Permits without one may be lost.
            Error::InDoubt { .. } | Error::Unavailable { .. }
                if self.outage_log.is_open() && name.kind().is_leased() =>
            {
                tracing::debug!(%name, error = %text, "release in the background failed");
            }
            _ => tracing::warn!(%name, error = %text, "release in the background failed"),
        }
    }

    /// Ends one guard locally. Returns `true` if it was the last one: renewal has stopped then.
    ///
    /// The release is sent after this.
    fn end_guard(&self, hold: &Arc<Hold>, lease_mode: LeaseMode, now: Moment) -> bool {
        // The lease may have ended before the watchdog noticed it.
        if let Some(reason) = hold.lost_by(now) {
            self.mark_lost(hold, reason);
        }
        let is_last = hold.end_guard(lease_mode, Event::GuardEnded, now) == Action::StopRenewal;
        if is_last {
            hold.note_end(HoldEnd::Released, now);
            self.wait_queues.durations.note(&hold.name, now.since(hold.began));
            self.watchdog.unwatch(hold);
        }
        is_last
    }

    /// Ends one guard locally, and leaves the hold on the store as it is.
    fn detach(&self, hold: &Arc<Hold>, lease_mode: LeaseMode) {
        let now = clock::now();
        if hold.end_guard(lease_mode, Event::GuardDetached, now) == Action::StopRenewal {
            hold.note_end(HoldEnd::LeftToStore, now);
            self.watchdog.unwatch(hold);
            self.wait_queues.remove_hold(hold);
            // The permits have no holder from now on, and must not return to the semaphore when this client
            // ends.
            if hold.name.kind() == Kind::Semaphore && hold.inner().state.doubt.is_none() {
                self.forget_request(&hold.name, &hold.owner);
            }
        }
    }
}
