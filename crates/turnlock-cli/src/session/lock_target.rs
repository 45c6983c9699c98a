use std::time::Duration;

use turnlock::{Client, Error, Inspection, Lock, PermitSemaphore};

use super::held_lock::HeldLock;
use super::reporter::Reporter;
use crate::lock_arguments::LockArguments;

/// The lock or permit to acquire for the command.
pub(crate) enum LockTarget {
    Lock(Lock),
    /// One permit of a semaphore that has this many.
    Permit(PermitSemaphore, u32),
}

/// How long to wait for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitLimit {
    NoWait,
    AtMost(Duration),
    Unlimited,
}

impl LockTarget {
    pub(crate) fn new(client: &Client, name: &str, arguments: &LockArguments) -> Self {
        let lease = arguments.lease;
        if let Some(permits) = arguments.permits {
            let semaphore = client.permit_semaphore(name);
            return Self::Permit(
                lease.map_or_else(|| semaphore.clone(), |lease| semaphore.with_lease(lease)),
                permits,
            );
        }
        let lock = match arguments {
            LockArguments { read: true, .. } => client.read_write_lock(name).reader(),
            LockArguments { write: true, .. } => client.read_write_lock(name).writer(),
            LockArguments { fair: true, .. } => client.fair_lock(name),
            LockArguments { fenced: true, .. } => client.fenced_lock(name),
            LockArguments { plain: true, .. } => client.plain_lock(name),
            _ => client.lock(name),
        };
        Self::Lock(lease.map_or_else(|| lock.clone(), |lease| lock.with_lease(lease)))
    }

    /// Acquires the lock or permit, or returns `None` after `limit`.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, like [`Lock::lock`].
    pub(crate) async fn acquire(
        &self,
        limit: WaitLimit,
        reporter: &Reporter,
    ) -> Result<Option<HeldLock>, Error> {
        match self {
            Self::Lock(lock) => {
                let guard = match limit {
                    WaitLimit::NoWait => lock.try_lock().await?.acquired(),
                    WaitLimit::AtMost(wait) => lock.try_lock_for(wait).await?.acquired(),
                    WaitLimit::Unlimited => Some(lock.lock().await?),
                };
                Ok(guard.map(HeldLock::Lock))
            }
            Self::Permit(semaphore, permits) => {
                set_permits(semaphore, *permits, reporter).await?;
                let permit = match limit {
                    WaitLimit::NoWait => semaphore.try_acquire(1).await?.acquired(),
                    WaitLimit::AtMost(wait) => semaphore.try_acquire_for(1, wait).await?.acquired(),
                    WaitLimit::Unlimited => Some(semaphore.acquire(1).await?),
                };
                Ok(permit.map(HeldLock::Permit))
            }
        }
    }

    pub(crate) async fn inspect(&self) -> Result<Inspection, Error> {
        match self {
            Self::Lock(lock) => lock.inspect().await,
            Self::Permit(semaphore, _) => semaphore.inspect().await,
        }
    }
}

/// Sets the total number of permits. If callers disagree, the last one wins.
async fn set_permits(semaphore: &PermitSemaphore, permits: u32, reporter: &Reporter) -> Result<(), Error> {
    if semaphore.try_set_permits(permits).await? {
        return Ok(());
    }
    let found = semaphore.inspect().await?;
    let held = i64::try_from(found.holders.len()).unwrap_or(i64::MAX);
    let total = found.available.unwrap_or_default().saturating_add(held);
    if total != i64::from(permits) {
        semaphore.set_permits(permits).await?;
        reporter.warn(&format!(
            "the number of permits was changed from {total} to {permits}: use the same --permits everywhere for this name"
        ));
    }
    Ok(())
}
