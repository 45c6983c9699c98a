use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use turnlock::{Error, Guard, LostReason, MultiGuard, Permits};
use turnlock_core::Moment;

/// What a task holds.
#[derive(Debug)]
pub(super) enum Held {
    Guard(Guard),
    Permits(Permits),
    /// Several locks, or one on several servers.
    Group(MultiGuard),
}

impl Held {
    /// The owner and the token of a member.
    pub(super) fn identity(&self, member: usize) -> (String, Option<u64>) {
        match self {
            Self::Guard(guard) => (guard.owner_id().to_string(), guard.token()),
            Self::Permits(permits) => (permits.ids().join("+"), None),
            Self::Group(guard) => (String::new(), guard.token(member)),
        }
    }

    pub(super) fn valid_until(&self) -> Moment {
        match self {
            Self::Guard(guard) => guard.valid_until_moment(),
            Self::Permits(permits) => permits.valid_until_moment(),
            Self::Group(guard) => guard.valid_until_moment(),
        }
    }

    pub(super) async fn lost(&self) -> LostReason {
        match self {
            Self::Guard(guard) => guard.lost().await,
            Self::Permits(permits) => permits.lost().await,
            Self::Group(guard) => guard.lost().await.reason,
        }
    }

    pub(super) async fn unlock(self) -> Result<(), Error> {
        match self {
            Self::Guard(guard) => guard.unlock().await,
            Self::Permits(permits) => permits.release().await,
            Self::Group(guard) => guard.unlock().await,
        }
    }

    /// Lets the store release it after a time. One that cannot is released at once.
    pub(super) async fn unlock_after(self, time: Duration) -> Result<(), Error> {
        match self {
            Self::Guard(guard) => Ok(guard.unlock_after(time).await?),
            Self::Permits(_) | Self::Group(_) => self.unlock().await,
        }
    }

    /// Acquires it once more, where that is possible.
    pub(super) fn reenter(&self) -> Option<BoxFuture<'_, Result<Guard, Error>>> {
        let Self::Guard(guard) = self else { return None };
        Some(guard.reenter().boxed())
    }
}
