use std::time::Duration;

use turnlock::{Client, Error, Inspection, Lock, PermitSemaphore};

use super::grant::Grant;
use super::voice::Voice;
use crate::run_arguments::RunArguments;

/// What the command is to run under.
pub(crate) enum Wanted {
    Lock(Lock),
    /// One of so many permits.
    Permit(PermitSemaphore, u32),
}

/// How long to wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    None,
    AtMost(Duration),
    Endless,
}

impl Wanted {
    pub(crate) fn new(client: &Client, name: &str, arguments: &RunArguments) -> Self {
        let lease = arguments.lease;
        if let Some(permits) = arguments.permits {
            let semaphore = client.permit_semaphore(name);
            return Self::Permit(
                lease.map_or_else(|| semaphore.clone(), |lease| semaphore.lease(lease)),
                permits,
            );
        }
        let lock = match arguments {
            RunArguments { read: true, .. } => client.read_write_lock(name).read(),
            RunArguments { write: true, .. } => client.read_write_lock(name).write(),
            RunArguments { fair: true, .. } => client.fair_lock(name),
            RunArguments { fenced: true, .. } => client.fenced_lock(name),
            RunArguments { plain: true, .. } => client.plain_lock(name),
            _ => client.lock(name),
        };
        Self::Lock(lease.map_or_else(|| lock.clone(), |lease| lock.lease(lease)))
    }

    /// Takes it. `None` when that was not to be within `patience`. Cancelling: safe, as for [`Lock::lock`].
    pub(crate) async fn take(&self, patience: Patience, voice: &Voice) -> Result<Option<Grant>, Error> {
        match self {
            Self::Lock(lock) => {
                let guard = match patience {
                    Patience::None => lock.try_lock().await?,
                    Patience::AtMost(wait) => lock.try_lock_for(wait).await?,
                    Patience::Endless => Some(lock.lock().await?),
                };
                Ok(guard.map(Grant::Lock))
            }
            Self::Permit(semaphore, permits) => {
                set_permits(semaphore, *permits, voice).await?;
                let permit = match patience {
                    Patience::None => semaphore.try_acquire(1).await?,
                    Patience::AtMost(wait) => semaphore.try_acquire_for(1, wait).await?,
                    Patience::Endless => Some(semaphore.acquire(1).await?),
                };
                Ok(permit.map(Grant::Permit))
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

/// Sees to it that there are so many permits in all. Who comes last is right.
async fn set_permits(semaphore: &PermitSemaphore, permits: u32, voice: &Voice) -> Result<(), Error> {
    if semaphore.try_set_permits(permits).await? {
        return Ok(());
    }
    let found = semaphore.inspect().await?;
    let out = i64::try_from(found.holders.len()).unwrap_or(i64::MAX);
    let total = found.available.unwrap_or_default().saturating_add(out);
    if total != i64::from(permits) {
        semaphore.set_permits(permits).await?;
        voice.warn(&format!(
            "there were {total} permits and now there are {permits}: say the same number wherever this name is used"
        ));
    }
    Ok(())
}
