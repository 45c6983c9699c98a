use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::{Either, select};

use crate::clock;
use crate::error::{Error, LostReason};
use crate::group::Group;

/// Several locks that are held as one: all of a [`MultiLock`](crate::MultiLock), or a majority of a
/// [`RedLock`](crate::RedLock). Dropping it gives them back in the background; [`unlock`](MultiGuard::unlock) is the
/// certain way.
///
/// **Guarantee.** Until [`lost`](MultiGuard::lost) is ready, [`is_valid`](MultiGuard::is_valid) is false or the guard is
/// dropped, each member that is needed is held as a [`Guard`](crate::Guard) promises it, and renewed on its own.
///
/// **Limits.** Those of each member. A member that was lost is not taken again, also where enough others are left.
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
#[must_use = "a guard that is not kept is dropped, and the locks with it"]
#[derive(Debug)]
pub struct MultiGuard {
    group: Arc<Group>,
}

/// A member whose loss ended the whole.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostMember {
    /// Its place among the locks as they were given, from 0.
    pub member: usize,
    /// Its name.
    pub name: String,
    /// How it was lost.
    pub reason: LostReason,
}

impl LostMember {
    pub(crate) fn into_error(self) -> Error {
        Error::Lost { name: self.name, reason: self.reason }
    }
}

impl MultiGuard {
    /// The group belongs to this guard from now on: it ends with it.
    pub(crate) fn new(group: Arc<Group>) -> Self {
        Self { group }
    }

    pub(crate) fn group(&self) -> &Arc<Group> {
        &self.group
    }

    /// How many members are held now. Of a [`RedLock`](crate::RedLock), servers that answer late join in.
    pub fn held(&self) -> usize {
        self.group.held()
    }

    /// The [fencing token](crate::Guard::token) of one member, by its place among the locks as they were given, from 0.
    /// `None` where that is no fenced lock, or, of a [`RedLock`](crate::RedLock), is not held. The tokens of different
    /// servers are not to be compared.
    pub fn token(&self, member: usize) -> Option<u64> {
        self.group.token(member)
    }

    /// Gives back all members at once, whatever becomes of each.
    ///
    /// Of a [`MultiLock`](crate::MultiLock), waits until all stores have confirmed; of a [`RedLock`](crate::RedLock),
    /// until a majority has, and the others go on in the background. If several fail, the gravest is reported:
    /// [`Error::Lost`] when a member that was needed was not held any more, then denials, then [`Error::InDoubt`].
    ///
    /// Cancelling: safe. All releases go on in the background.
    pub async fn unlock(self) -> Result<(), Error> {
        self.group.engine.shared.on_runtime(self.group.give_back()).await
    }

    /// Waits until too few members are left, and says which one was lost and how. For a [`MultiLock`](crate::MultiLock)
    /// one is too few; for a [`RedLock`](crate::RedLock), less than a majority, and one of those that are missing is named.
    ///
    /// Cancelling: safe, nothing is changed.
    pub async fn lost(&self) -> LostMember {
        self.group.until_lost().await
    }

    /// Whether enough members are still held, as far as this process can know without asking.
    pub fn is_valid(&self) -> bool {
        self.group.is_valid()
    }

    /// Until when enough members are held if no further renewal is confirmed: the earliest end of a
    /// [`MultiLock`](crate::MultiLock)'s members; the end of the last majority of a [`RedLock`](crate::RedLock)'s.
    pub fn valid_until(&self) -> Instant {
        Instant::now() + self.group.believed_until().since(clock::now())
    }

    /// Runs `body` under this guard, which is given back afterwards.
    pub(crate) async fn run<B, F>(self, body: B) -> Result<F::Output, Error>
    where
        B: FnOnce(MultiHeld) -> F,
        F: Future,
    {
        let output = {
            let lost = pin!(self.lost());
            // Boxed, so that it can be dropped, and thereby cancelled, before the locks are given back.
            let body = Box::pin(body(MultiHeld(Arc::clone(&self.group))));
            match select(lost, body).await {
                Either::Left((lost, _)) => Err(lost),
                Either::Right((output, _)) => Ok(output),
            }
        };
        match (output, self.group.lost()) {
            // A body that ended after too many leases did was not covered to its end.
            (Err(lost), _) | (_, Some(lost)) => Err(lost.into_error()),
            (Ok(output), None) => match self.unlock().await {
                Err(error @ Error::Lost { .. }) => Err(error),
                Err(error) => {
                    tracing::warn!(%error, "the locks of a finished body could not be given back");
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

/// The locks as the body of a run sees them: it can look, and cannot give them back.
#[derive(Clone, Debug)]
pub struct MultiHeld(Arc<Group>);

impl MultiHeld {
    /// As [`MultiGuard::held`].
    pub fn held(&self) -> usize {
        self.0.held()
    }

    /// As [`MultiGuard::token`].
    pub fn token(&self, member: usize) -> Option<u64> {
        self.0.token(member)
    }

    /// As [`MultiGuard::is_valid`].
    pub fn is_valid(&self) -> bool {
        self.0.is_valid()
    }

    /// As [`MultiGuard::valid_until`].
    pub fn valid_until(&self) -> Instant {
        Instant::now() + self.0.believed_until().since(clock::now())
    }

    /// As [`MultiGuard::lost`].
    pub async fn lost(&self) -> LostMember {
        self.0.until_lost().await
    }
}
