use std::time::{Duration, Instant};

use turnlock_core::Kind;
use turnlock_core::model::PermitId;

use crate::error::{Error, LostReason};
use crate::guard::Guard;

/// Permits that were taken from a [`Semaphore`](crate::Semaphore) or a [`PermitSemaphore`](crate::PermitSemaphore). They
/// are given back when this is dropped.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let client = turnlock::Client::connect("memory://").await?;
/// let slots = client.semaphore("slots");
/// slots.try_set_permits(3).await?;
/// let permits = slots.acquire(2).await?;
/// assert_eq!((permits.count(), slots.available().await?), (2, 1));
/// permits.release().await?; // the certain way; dropping is the convenient way
/// assert_eq!(slots.available().await?, 3);
/// # Ok::<(), turnlock::Error>(()) }).unwrap();
/// ```
#[must_use = "permits that are not kept are dropped, and thereby given back"]
#[derive(Debug)]
pub struct Permits {
    guard: Guard,
}

impl Permits {
    pub(crate) fn new(guard: Guard) -> Self {
        Self { guard }
    }

    /// The name of the semaphore.
    pub fn name(&self) -> &str {
        self.guard.name()
    }

    /// How many permits these are.
    pub fn count(&self) -> u32 {
        self.guard.hold().permits
    }

    /// The ids of the permits on the wire, 32 hexadecimal digits each, as Redisson gives them out. None for a semaphore
    /// whose permits have no ids.
    pub fn ids(&self) -> Vec<String> {
        let hold = self.guard.hold();
        let permits = if hold.name.kind() == Kind::Permits { hold.permits } else { 0 };
        PermitId::of_hold(&hold.owner, permits).map(|id| id.to_string()).collect()
    }

    /// As [`Guard::replicas`].
    pub fn replicas(&self) -> u32 {
        self.guard.replicas()
    }

    /// Gives the permits back and waits until the store has confirmed it.
    ///
    /// [`Error::Lost`] means that they were not out any more: their lease ended, the store lost its data, or a
    /// fail-over forgot them.
    ///
    /// Cancelling: safe. The release goes on in the background.
    pub async fn release(self) -> Result<(), Error> {
        self.guard.unlock().await
    }

    /// Keeps the permits out without this guard: for whoever gives them back elsewhere. Those of a permit semaphore are not
    /// renewed any more, and come back by themselves when their lease ends.
    pub fn forget(self) {
        self.guard.abandon();
    }

    /// Keeps the permits out for `time` from now on, without this guard and without renewal; then they come back by
    /// themselves. As [`Guard::keep_for`]. Those of a [`Semaphore`](crate::Semaphore) have no lease: they are given back, with
    /// [`Error::Unsupported`].
    ///
    /// Cancelling: safe. Once begun, it goes on in the background.
    pub async fn keep_for(self, time: Duration) -> Result<(), Error> {
        self.guard.keep_for(time).await
    }

    /// As [`Guard::announce`].
    pub async fn announce(&self) -> Result<(), Error> {
        self.guard.announce().await
    }

    /// Waits until the permits are lost, and says how. Not ready as long as they are held. Permits without a lease are
    /// never lost by time.
    ///
    /// Cancelling: safe, nothing is changed.
    pub async fn lost(&self) -> LostReason {
        self.guard.lost().await
    }

    /// As [`Guard::is_valid`].
    pub fn is_valid(&self) -> bool {
        self.guard.is_valid()
    }

    /// As [`Guard::valid_until`].
    pub fn valid_until(&self) -> Instant {
        self.guard.valid_until()
    }
}
