use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::Context;
use turnlock::LostReason;

use super::announcement::{Announced, Announcement};
use super::stdin_watch::StdinWatch;
use crate::arguments::StoreArguments;
use crate::exit_code;
use crate::run_arguments::OnLost;
use crate::session::countdown::{Action, Countdown, LockState};
use crate::session::event::{Event, LossCause};
use crate::session::lock_session::{Grant, LockSession, SessionEnd};
use crate::session::release::{MIN_UNLOCK_DELAY, Release};
use crate::session::run_lease::RunLease;
use crate::session::signals::{Signals, name_of};

/// How long to wait for the reader of the line when `--for` is over.
const PRINT_LIMIT: Duration = Duration::from_millis(500);
/// Limit of the request to keep a fixed lease until its end.
const KEEP_LIMIT: Duration = Duration::from_millis(500);

/// One lock that is held until it is to be released, from connecting to the exit code.
pub(super) struct LockHold<'a> {
    pub(super) session: LockSession<'a>,
    /// The time after which the lock is released.
    pub(super) duration: Option<Duration>,
    pub(super) stdin: StdinWatch,
}

/// Why the hold ends.
enum HoldEnd {
    /// Standard input closed, a signal was received, or `--for` is over.
    Requested,
    /// The line could not be printed.
    NotPrinted(std::io::Error),
    /// The lock is lost for this reason.
    Lost(LostReason),
    /// The lock is about to be lost at this time.
    Losing(Instant),
}

impl LockHold<'_> {
    /// Connects, acquires the lock, holds it and releases it. Returns the exit code.
    pub(super) async fn perform(&self, store: &StoreArguments) -> anyhow::Result<u8> {
        // Events of standard input are known after one turn of the runtime.
        tokio::task::yield_now().await;
        let abandoned = async {
            self.stdin.closed().await;
            self.session.reporter.warn(
                "standard input was closed before the lock was acquired: to hold it until a signal, use </dev/null",
            );
        };
        let under_lock = async |grant, signals: &mut Signals| self.hold(grant, signals).await;
        self.session.perform(store, abandoned, under_lock).await
    }

    async fn hold(&self, grant: Grant, signals: &mut Signals) -> anyhow::Result<SessionEnd> {
        match self.until_end(&grant, signals).await? {
            HoldEnd::Requested => {
                let release = self.session.release_in_order(grant, signals).await;
                Ok(self.released(release))
            }
            HoldEnd::NotPrinted(error) => {
                self.session.release(grant.lock, signals).await;
                Err(error).context("the lock was released, since standard output cannot be written")
            }
            HoldEnd::Lost(reason) => Ok(self.lost(LossCause::lost(reason))),
            HoldEnd::Losing(end) => Ok(self.leave(grant, end).await),
        }
    }

    /// Announces the lock, and waits for the end of the hold.
    async fn until_end(&self, grant: &Grant, signals: &mut Signals) -> anyhow::Result<HoldEnd> {
        let Grant { lock, at } = grant;
        // The lease may have ended since the grant, for example on a machine that was suspended.
        if !lock.is_valid() {
            return Ok(HoldEnd::Lost(lock.lost().await));
        }
        let mut announced = Announcement::new(&self.session, lock).make().context("cannot start a thread")?;
        let mut is_announced = false;
        let mut recorded = pin!(lock.announce());
        let mut is_recorded = false;
        // The caller has this time to stop, as a command has between TERM and KILL.
        let lease = RunLease::of(self.session.arguments);
        let mut countdown = Countdown::new(OnLost::Term, None, lease.duration());
        let release_at = self.duration.and_then(|duration| at.checked_add(duration));
        loop {
            let state = LockState { valid_until: lock.valid_until(), lost: None };
            let Action::Wait(until) = countdown.next_action(Instant::now(), state) else {
                // A process that was stopped may find the end over.
                let end = state.valid_until;
                let is_over = Instant::now() >= end;
                return Ok(if is_over {
                    HoldEnd::Lost(lease.lost_reason(end))
                } else {
                    HoldEnd::Losing(end)
                });
            };
            let is_over = release_at.is_some_and(|release_at| Instant::now() >= release_at);
            // The line is printed even if the time is short.
            if is_over && (is_announced || Instant::now() >= *at + PRINT_LIMIT) {
                return Ok(HoldEnd::Requested);
            }
            let release_at = if is_over { Some(*at + PRINT_LIMIT) } else { release_at };
            let until = release_at.map_or(until, |release_at| until.min(release_at));
            tokio::select! {
                biased;
                reason = lock.lost() => return Ok(HoldEnd::Lost(reason)),
                received = signals.next() => {
                    let signal = name_of(received.signal.as_raw());
                    self.session.reporter.report(&Event::Signal { signal, forwarded: false });
                    return Ok(HoldEnd::Requested);
                }
                () = self.stdin.closed() => return Ok(HoldEnd::Requested),
                outcome = &mut announced, if !is_announced => {
                    is_announced = true;
                    let Announced { printed, notified } = outcome.context("the announcement failed")?;
                    if let Err(error) = printed {
                        return Ok(HoldEnd::NotPrinted(error));
                    }
                    if let Err(error) = notified {
                        self.session.reporter.warn(&format!("cannot notify the service manager: {error}"));
                    }
                }
                // Only informs other clients since when the lock is held. A failure has no effect on the hold.
                _ = &mut recorded, if !is_recorded => is_recorded = true,
                () = tokio::time::sleep_until(until.into()) => {}
            }
        }
    }

    /// The end after a release that was requested.
    fn released(&self, release: Release) -> SessionEnd {
        match release {
            Release::Done | Release::Unconfirmed => {}
            // The lock was held until the release was requested.
            Release::Expired { unconfirmed, .. } => self.session.reporter.warn(unconfirmed),
            Release::Lost(reason) => return self.lost(LossCause::lost(reason)),
        }
        SessionEnd { code: 0, lock_is_over: release.lock_is_over() }
    }

    fn lost(&self, cause: LossCause) -> SessionEnd {
        self.session.reporter.report(&Event::Lost { cause, left_ms: None });
        SessionEnd { code: exit_code::LOST, lock_is_over: true }
    }

    /// Exits before the lock ends, and leaves the lock to its end: the caller may not have stopped yet.
    async fn leave(&self, grant: Grant, end: Instant) -> SessionEnd {
        let lease = RunLease::of(self.session.arguments);
        let left = end.saturating_duration_since(Instant::now());
        let cause = LossCause::losing(lease.lost_reason(end));
        self.session.reporter.report(&Event::Losing { cause, left_ms: left.as_millis(), term_sent: false });
        match lease {
            // The lock on a file would end with this process.
            RunLease::Fixed(_) => {
                let at_least = self.session.arguments.at_least.unwrap_or_default();
                let delay = left.max(at_least.saturating_sub(grant.at.elapsed())).max(MIN_UNLOCK_DELAY);
                let _ = tokio::time::timeout(KEEP_LIMIT, grant.lock.unlock_after(delay)).await;
            }
            // The store does not reply. A drop would release the lock if it replies again.
            RunLease::Renewed(_) => std::mem::forget(grant.lock),
        }
        SessionEnd { code: exit_code::LOST, lock_is_over: true }
    }
}
