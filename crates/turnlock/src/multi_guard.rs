use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::{Either, select};

use crate::clock;
use crate::error::{Error, LostReason};
use crate::group::Group;

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
    group: Arc<Group>,
}

/// The member whose loss ended a [`MultiGuard`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostMember {
    /// Its index among the locks as given.
    pub member: usize,
    /// Its name.
    pub name: String,
    /// Why it was lost.
    pub reason: LostReason,
}

impl LostMember {
    pub(crate) fn into_error(self) -> Error {
        Error::Lost { name: self.name, reason: self.reason }
    }
}

impl MultiGuard {
    /// Takes the group over: it is closed when the guard is dropped.
    pub(crate) fn new(group: Arc<Group>) -> Self {
        Self { group }
    }

    pub(crate) fn group(&self) -> &Arc<Group> {
        &self.group
    }

    /// Returns how many members are held.
    ///
    /// A server of a [`RedLock`](crate::RedLock) that replies late is added.
    pub fn held(&self) -> usize {
        self.group.held()
    }

    /// Returns the [fencing token](crate::Guard::token) of the member at this index.
    ///
    /// `None` if the member is not a fenced lock, or is not held. Tokens of different servers cannot be compared.
    pub fn token(&self, member: usize) -> Option<u64> {
        self.group.token(member)
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
        self.group.engine.shared.on_runtime(self.group.release()).await
    }

    /// Waits until too few members are held, and returns one that was lost.
    ///
    /// A [`MultiLock`](crate::MultiLock) needs all members, a [`RedLock`](crate::RedLock) a majority.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn lost(&self) -> LostMember {
        self.group.until_lost().await
    }

    /// Returns `true` if enough members are held, as far as this process knows.
    pub fn is_valid(&self) -> bool {
        self.group.is_valid()
    }

    /// Returns until when enough members are held if no further renewal is confirmed.
    ///
    /// The earliest end of the members of a [`MultiLock`](crate::MultiLock), or the end of the last majority of a
    /// [`RedLock`](crate::RedLock).
    pub fn valid_until(&self) -> Instant {
        Instant::now() + self.group.valid_until().since(clock::now())
    }

    /// Runs `body` under this guard, and releases it.
    pub(crate) async fn run<B, F>(self, body: B) -> Result<F::Output, Error>
    where
        B: FnOnce(MultiHeld) -> F,
        F: Future,
    {
        let output = {
            let lost = pin!(self.lost());
            // Boxed, so that it can be dropped before the locks are released.
            let body = Box::pin(body(MultiHeld(Arc::clone(&self.group))));
            match select(lost, body).await {
                Either::Left((lost, _)) => Err(lost),
                Either::Right((output, _)) => Ok(output),
            }
        };
        match (output, self.group.lost()) {
            // A body that outlasted the leases did not run under the locks to its end.
            (Err(lost), _) | (_, Some(lost)) => Err(lost.into_error()),
            (Ok(output), None) => match self.unlock().await {
                Err(error @ Error::Lost { .. }) => Err(error),
                Err(error) => {
                    tracing::warn!(error = %error.with_causes(), "release failed after the body returned");
                    Ok(output)
                }
                Ok(()) => Ok(output),
            },
        }
    }
}

impl Drop for MultiGuard {
    fn drop(&mut self) {
        drop(self.group.close());
    }
}

/// The held locks, as a body sees them: they cannot be released.
#[derive(Clone, Debug)]
pub struct MultiHeld(Arc<Group>);

impl MultiHeld {
    /// Returns how many members are held: [`MultiGuard::held`].
    pub fn held(&self) -> usize {
        self.0.held()
    }

    /// Returns the fencing token of a member: [`MultiGuard::token`].
    pub fn token(&self, member: usize) -> Option<u64> {
        self.0.token(member)
    }

    /// Returns `true` if enough members are held: [`MultiGuard::is_valid`].
    pub fn is_valid(&self) -> bool {
        self.0.is_valid()
    }

    /// Returns until when enough members are held: [`MultiGuard::valid_until`].
    pub fn valid_until(&self) -> Instant {
        Instant::now() + self.0.valid_until().since(clock::now())
    }

    /// Waits until too few members are held: [`MultiGuard::lost`].
    pub async fn lost(&self) -> LostMember {
        self.0.until_lost().await
    }
}
