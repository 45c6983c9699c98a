use std::time::{Duration, Instant};

use turnlock::{Error, Guard, LostReason, Permits};

/// A held lock, or a held permit.
pub(crate) enum HeldLock {
    Lock(Guard),
    Permit(Permits),
}

impl HeldLock {
    /// The holder as recorded on the store: the owner of a lock, or the id of a permit.
    pub(crate) fn owner(&self) -> String {
        match self {
            Self::Lock(guard) => guard.owner_id().to_string(),
            Self::Permit(permit) => permit.ids().into_iter().next().unwrap_or_default(),
        }
    }

    pub(crate) fn token(&self) -> Option<u64> {
        match self {
            Self::Lock(guard) => guard.token(),
            Self::Permit(_) => None,
        }
    }

    pub(crate) fn valid_until(&self) -> Instant {
        match self {
            Self::Lock(guard) => guard.valid_until(),
            Self::Permit(permit) => permit.valid_until(),
        }
    }

    pub(crate) fn is_valid(&self) -> bool {
        match self {
            Self::Lock(guard) => guard.is_valid(),
            Self::Permit(permit) => permit.is_valid(),
        }
    }

    pub(crate) async fn lost(&self) -> LostReason {
        match self {
            Self::Lock(guard) => guard.lost().await,
            Self::Permit(permit) => permit.lost().await,
        }
    }

    pub(crate) async fn announce(&self) -> Result<(), Error> {
        match self {
            Self::Lock(guard) => guard.announce().await,
            Self::Permit(permit) => permit.announce().await,
        }
    }

    pub(crate) async fn unlock_after(self, time: Duration) -> Result<(), Error> {
        match self {
            Self::Lock(guard) => Ok(guard.unlock_after(time).await?),
            Self::Permit(permit) => Ok(permit.release_after(time).await?),
        }
    }

    pub(crate) async fn release(self) -> Result<(), Error> {
        match self {
            Self::Lock(guard) => guard.unlock().await,
            Self::Permit(permit) => permit.release().await,
        }
    }
}
