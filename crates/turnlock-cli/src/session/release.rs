use std::time::{Duration, Instant};

use turnlock::{Error, LostReason};

use super::event::Event;
use super::held_lock::HeldLock;
use super::lock_session::{Grant, LockSession};
use super::run_lease::RunLease;
use super::signals::Signals;

/// Limit of the wait for a release after a signal.
const LIMIT_AFTER_SIGNAL: Duration = Duration::from_secs(2);
/// The shortest time to wait for the reply to a release, even if the lock ends sooner.
const MIN_RELEASE_WAIT: Duration = Duration::from_millis(500);
/// The shortest delay of a delayed unlock: the minimum length of a lease.
pub(crate) const MIN_UNLOCK_DELAY: Duration = Duration::from_millis(10);

/// The outcome of a release or delayed unlock.
#[derive(Clone, Copy)]
pub(crate) enum Release {
    /// Confirmed by the store.
    Done,
    /// Not confirmed by the store.
    Unconfirmed,
    /// Not confirmed before the lock ended for this reason.
    Expired { reason: LostReason, unconfirmed: &'static str },
    /// The lock was already lost.
    Lost(LostReason),
}

impl Release {
    /// Returns `true` if there is nothing left to release.
    pub(crate) fn lock_is_over(self) -> bool {
        matches!(self, Self::Expired { .. } | Self::Lost(_))
    }
}

/// The store's reply to a release or delayed unlock.
enum ReleaseReply {
    Confirmed,
    Failed(Error),
    /// A signal ended the wait.
    Interrupted,
    /// No reply before the end of the lock.
    TimedOut,
}

impl LockSession<'_> {
    /// Releases the lock, or lets the store release it when `--at-least` is over.
    pub(crate) async fn release_in_order(&self, grant: Grant, signals: &mut Signals) -> Release {
        match self.arguments.at_least.map(|time| time.saturating_sub(grant.at.elapsed())) {
            Some(delay) if !delay.is_zero() => self.unlock_after(grant.lock, delay, signals).await,
            _ => self.release(grant.lock, signals).await,
        }
    }

    /// Releases the lock now.
    pub(crate) async fn release(&self, lock: HeldLock, signals: &mut Signals) -> Release {
        if !lock.is_valid() {
            return Release::Lost(lock.lost().await);
        }
        let valid_until = lock.valid_until();
        let reply = release_reply(signals, valid_until, lock.release()).await;
        let unconfirmed = "the release was not confirmed in time: the lock ends with its lease";
        self.finish_release(reply, valid_until, &Event::Released, unconfirmed)
    }

    async fn unlock_after(&self, lock: HeldLock, delay: Duration, signals: &mut Signals) -> Release {
        if !lock.is_valid() {
            return Release::Lost(lock.lost().await);
        }
        let delay = delay.max(MIN_UNLOCK_DELAY);
        let valid_until = lock.valid_until();
        let reply = release_reply(signals, valid_until, lock.unlock_after(delay)).await;
        let unconfirmed = "--at-least was not confirmed in time: the lock may end with its lease";
        let done = Event::UnlockDelayed { for_ms: delay.as_millis() };
        self.finish_release(reply, valid_until, &done, unconfirmed)
    }

    /// Reports the reply to the release of a lock that was valid until `valid_until`.
    fn finish_release(
        &self,
        reply: ReleaseReply,
        valid_until: Instant,
        done: &Event<'_>,
        unconfirmed: &'static str,
    ) -> Release {
        match reply {
            ReleaseReply::Confirmed => {
                self.reporter.report(done);
                Release::Done
            }
            ReleaseReply::Interrupted => {
                self.reporter.warn(unconfirmed);
                Release::Unconfirmed
            }
            ReleaseReply::TimedOut => {
                let reason = RunLease::of(self.arguments).lost_reason(valid_until);
                Release::Expired { reason, unconfirmed }
            }
            ReleaseReply::Failed(Error::Lost { reason, .. }) => Release::Lost(reason),
            ReleaseReply::Failed(error) => {
                self.reporter.warn(&turnlock_core::error_chain(&error));
                Release::Unconfirmed
            }
        }
    }
}

/// Waits for the reply to a release until the lock ends, and only briefly after a signal.
///
/// The release continues in the background.
async fn release_reply(
    signals: &mut Signals,
    valid_until: Instant,
    release: impl Future<Output = Result<(), Error>>,
) -> ReleaseReply {
    let interrupted = async {
        signals.next().await;
        tokio::time::sleep(LIMIT_AFTER_SIGNAL).await;
    };
    let deadline = valid_until.max(Instant::now() + MIN_RELEASE_WAIT);
    tokio::select! {
        biased;
        released = release => released.map_or_else(ReleaseReply::Failed, |()| ReleaseReply::Confirmed),
        () = interrupted => ReleaseReply::Interrupted,
        () = tokio::time::sleep_until(deadline.into()) => ReleaseReply::TimedOut,
    }
}
