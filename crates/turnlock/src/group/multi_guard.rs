use std::time::Instant;

use futures_util::FutureExt;
use turnlock_core::Moment;

use super::multi_held::{LostMember, MultiHeld};
use crate::Error;
use crate::lock::{after_body, run_until_lost};

/// Several locks that are held together.
///
/// All members of a [`MultiLock`](crate::MultiLock), or a majority of a [`RedLock`](crate::RedLock). Dropping it releases
/// them in the background; [`unlock`](MultiGuard::unlock) waits for the confirmation.
///
/// Each member gives the guarantee of a [`Guard`](crate::Guard), and is renewed on its own. A member that was lost is not
/// acquired again, even if enough others remain.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let client = turnlock::Client::connect("memory://").await?;
/// let both = turnlock::MultiLock::new([client.lock("from"), client.lock("to")])?;
/// let guard = both.lock().await?;
/// assert!(guard.is_valid() && guard.held() == 2);
/// guard.unlock().await?;
/// # Ok::<(), turnlock::Error>(()) }).unwrap();
/// ```
#[must_use = "the locks are released when the guard is dropped: bind it to a variable"]
#[derive(Debug)]
pub struct MultiGuard {
    /// It is closed when the guard is dropped.
    pub(super) held: MultiHeld,
}

impl MultiGuard {
    /// Returns the error of a lock that is lost.
    pub(crate) fn lost_error(&self) -> Option<Error> {
        self.held.lost_member().map(LostMember::into_error)
    }

    /// Returns how many members are held.
    ///
    /// A server of a [`RedLock`](crate::RedLock) that replies late is added.
    pub fn held(&self) -> usize {
        self.held.held()
    }

    /// Returns the [fencing token](crate::Guard::token) of the member at this index.
    ///
    /// `None` if the member is not a fenced lock, or is not held. Tokens of different servers cannot be compared.
    pub fn token(&self, member: usize) -> Option<u64> {
        self.held.token(member)
    }

    /// Releases all members at the same time.
    ///
    /// Of a [`MultiLock`](crate::MultiLock), waits until all stores confirm; of a [`RedLock`](crate::RedLock), until a
    /// majority confirms, and the rest continues in the background.
    ///
    /// # Errors
    ///
    /// If several fail, the gravest: [`Error::Lost`] if a needed member was no longer held, then [`Error::Denied`], then
    /// [`Error::InDoubt`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe. All releases continue in the background.
    pub async fn unlock(self) -> Result<(), Error> {
        self.held.release().await
    }

    /// Waits until too few members are held, and returns one that was lost.
    ///
    /// A [`MultiLock`](crate::MultiLock) needs all members, a [`RedLock`](crate::RedLock) a majority.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn lost(&self) -> LostMember {
        self.held.lost().await
    }

    /// Returns `true` if enough members are held, as far as this process knows.
    pub fn is_valid(&self) -> bool {
        self.held.is_valid()
    }

    /// Returns until when enough members are held if no further renewal is confirmed.
    ///
    /// The earliest end of the members of a [`MultiLock`](crate::MultiLock), or the end of the last majority of a
    /// [`RedLock`](crate::RedLock).
    pub fn valid_until(&self) -> Instant {
        self.held.valid_until()
    }

    /// As [`valid_until`](Self::valid_until), by the clock of the leases. For simulations.
    #[doc(hidden)]
    pub fn valid_until_moment(&self) -> Moment {
        self.held.valid_until_moment()
    }

    /// Runs `body` under this guard, and releases it.
    pub(super) async fn run<F: Future>(self, body: impl FnOnce(MultiHeld) -> F) -> Result<F::Output, Error> {
        let body = Box::pin(body(self.held.clone()));
        let lost = self.lost().map(LostMember::into_error);
        let output = run_until_lost(lost, || self.lost_error(), body).await?;
        after_body(output, self.unlock().await, None)
    }
}

impl Drop for MultiGuard {
    fn drop(&mut self) {
        drop(self.held.close());
    }
}
