use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};
use tokio::time::error::Elapsed;
use turnlock_core::{LockName, Moment};

use super::state::{CallSite, Hold, LeaseMode};
use crate::clock;
use crate::error::Error;

/// The parameters of an acquire.
#[derive(Clone, Debug)]
pub(crate) struct AcquireRequest {
    pub(crate) name: LockName,
    pub(crate) lease_mode: LeaseMode,
    pub(crate) wait_limit: WaitLimit,
    /// The number of permits, for semaphores.
    pub(crate) permits: u32,
    /// The number of replicas that must acknowledge the grant and each renewal.
    pub(crate) replicas: u32,
    /// Whether a hold of this client may be handed over to it. It then has the owner of that hold.
    pub(crate) accepts_hand_over: bool,
    /// The write hold of the same owner, for a read lock acquired beside it.
    pub(crate) under: Option<Arc<Hold>>,
    pub(crate) call_site: CallSite,
}

/// The parameters of a reentry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReenterRequest {
    pub(crate) lease_mode: LeaseMode,
    /// How long to retry while the store does not reply.
    pub(crate) wait_limit: WaitLimit,
    /// The number of replicas that must acknowledge it, at least that of the hold.
    pub(crate) replicas: u32,
}

/// How long to wait for a lock that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitLimit {
    /// Do not wait.
    None,
    Until(Moment),
    Endless,
}

impl WaitLimit {
    pub(crate) fn of(wait: Duration) -> Self {
        if wait.is_zero() { Self::None } else { Self::Until(clock::now() + wait) }
    }

    /// Locks `mutex` within the wait limit. With [`WaitLimit::None`], only if it is free now.
    pub(crate) async fn lock<T>(self, mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
        match self {
            Self::None => mutex.try_lock().ok(),
            _ => self.bound(Duration::ZERO, mutex.lock()).await.ok(),
        }
    }

    /// Awaits `future` within the wait limit, or for `least` if that is longer.
    pub(super) async fn bound<F: Future>(self, least: Duration, future: F) -> Result<F::Output, Elapsed> {
        match self {
            Self::Endless => Ok(future.await),
            _ => tokio::time::timeout(self.end().since(clock::now()).max(least), future).await,
        }
    }

    pub(crate) fn end(self) -> Moment {
        match self {
            Self::None => Moment::from_micros(0),
            Self::Until(end) => end,
            Self::Endless => Moment::NEVER,
        }
    }
}

/// Checks a number of permits or a count. The limit is that of Redisson, which counts in 32 bits.
pub(crate) fn checked_number(argument: &'static str, number: u32) -> Result<u32, Error> {
    if number == 0 || i32::try_from(number).is_err() {
        let reason = format!("{number} is out of range; use a number from 1 to {}", i32::MAX);
        return Err(Error::bad_argument(argument, reason));
    }
    Ok(number)
}

/// The kind and name of a lock, for messages.
pub(crate) fn describe(name: &LockName) -> String {
    format!("{} {:?}", name.kind().label(), name.as_str())
}

/// A time-out, as the cause of an error.
pub(crate) fn time_out(text: impl Into<String>) -> Arc<io::Error> {
    Arc::new(io::Error::new(io::ErrorKind::TimedOut, text.into()))
}

/// The error of a request that got no reply.
pub(super) fn no_reply(name: &LockName, limit: Duration) -> Error {
    timed_out(name, format!("no reply within {limit:?}"))
}

/// The error of an acquire without a reply in time.
pub(super) fn timed_out(name: &LockName, text: String) -> Error {
    Error::Unavailable { what: format!("lock {:?}", name.as_str()), source: time_out(text) }
}
