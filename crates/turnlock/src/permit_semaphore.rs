use std::sync::Arc;
use std::time::Duration;

use turnlock_core::model::Deed;
use turnlock_core::{Kind, Lease, LeaseError};

use crate::engine::{Ask, Engine, Patience, Term, acquire_permits, checked_number};
use crate::error::Error;
use crate::inspection::Inspection;
use crate::named::{Named, endless};
use crate::permits::Permits;

/// A number of permits with ids and leases: at most so many at a time, and those of a process that dies come back.
/// Redisson's `RPermitExpirableSemaphore` on the same wire.
///
/// **Guarantee.** Permits are renewed by the watchdog while their guard lives, unless a [`lease`](PermitSemaphore::lease)
/// was fixed. When their process dies they are free again when the lease ends: after 30 s if nothing else was said. The
/// holder hears of the end first, as with a lock.
///
/// **Limits.** The end of a permit stands on the store by the store's clock; Java's clients look at it by their own. One
/// whose clock is ahead by more than two thirds of the lease gives permits away that are still out.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let client = turnlock::Client::connect("memory://").await?;
/// let slots = client.permit_semaphore("slots");
/// slots.try_set_permits(2).await?;
/// let permits = slots.acquire(2).await?; // renewed while the guard lives
/// assert!(slots.try_acquire(1).await?.is_none());
/// assert_eq!(permits.ids().len(), 2);
/// drop(permits);
/// # Ok::<(), turnlock::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct PermitSemaphore {
    named: Named,
    lease: Option<Result<Lease, LeaseError>>,
}

impl PermitSemaphore {
    pub(crate) fn new(engine: &Arc<Engine>, name: &str) -> Self {
        Self { named: Named::new(engine, Kind::Permits, name), lease: None }
    }

    /// The same semaphore, whose permits are taken with a fixed lease: not renewed.
    #[must_use = "this makes another handle; the semaphore is as it was"]
    pub fn lease(&self, lease: Duration) -> Self {
        Self { lease: Some(Lease::new(lease)), ..self.clone() }
    }

    /// The same semaphore, whose permits count as taken only when at least so many replicas of the server have acknowledged
    /// it. As [`Lock::acknowledged_by`](crate::Lock::acknowledged_by).
    ///
    /// Grants and renewals are acknowledged; releases and the other steps on the number are not.
    #[must_use = "this makes another handle; the semaphore is as it was"]
    pub fn acknowledged_by(&self, replicas: u32) -> Self {
        Self { named: self.named.acknowledged_by(replicas), ..self.clone() }
    }

    /// The name, as it was given. Empty when the given one is not valid.
    pub fn name(&self) -> &str {
        self.named.as_str()
    }

    /// Sets the number of permits, if it was never set. Whether this did it.
    ///
    /// Cancelling: once begun, it is finished in the background.
    pub async fn try_set_permits(&self, permits: u32) -> Result<bool, Error> {
        Ok(self.named.perform(Deed::SetOnce(u64::from(checked_number(permits)?))).await? == 1)
    }

    /// Sets the number of all permits, free and out. How many are free then: fewer than none when more are out than that.
    ///
    /// Cancelling: once begun, it is finished in the background.
    pub async fn set_permits(&self, permits: u32) -> Result<i64, Error> {
        self.named.perform(Deed::SetTotal(u64::from(checked_number(permits)?))).await
    }

    /// Adds to the number of permits, or takes from it. How many are free then.
    ///
    /// Cancelling: once begun, it is finished in the background.
    pub async fn add_permits(&self, difference: i32) -> Result<i64, Error> {
        self.named.perform(Deed::Add(i64::from(difference))).await
    }

    /// Takes `permits` permits together, and waits for them as long as it takes.
    ///
    /// Cancelling: safe. A request that is under way is finished in the background, and what it got is given back.
    pub async fn acquire(&self, permits: u32) -> Result<Permits, Error> {
        endless(self.take(permits, Patience::Endless).await)
    }

    /// Takes `permits` permits together if they are free, and does not wait.
    ///
    /// Cancelling: as for [`acquire`](PermitSemaphore::acquire).
    pub async fn try_acquire(&self, permits: u32) -> Result<Option<Permits>, Error> {
        self.take(permits, Patience::None).await
    }

    /// Takes `permits` permits together, and waits for them for `wait` at the most.
    ///
    /// Cancelling: as for [`acquire`](PermitSemaphore::acquire).
    pub async fn try_acquire_for(&self, permits: u32, wait: Duration) -> Result<Option<Permits>, Error> {
        self.take(permits, Patience::of(wait)).await
    }

    /// Removes the semaphore. Whether it was there. Permits that are out are lost.
    ///
    /// Cancelling: once begun, it is finished in the background.
    pub async fn delete(&self) -> Result<bool, Error> {
        Ok(self.named.perform(Deed::Delete).await? == 1)
    }

    /// How many permits are free. Zero when none were ever set.
    pub async fn available(&self) -> Result<i64, Error> {
        Ok(self.inspect().await?.available.unwrap_or_default())
    }

    /// How many permits are free, which are out and for how long, and how many wait here.
    pub async fn inspect(&self) -> Result<Inspection, Error> {
        self.named.inspect().await
    }

    pub(crate) async fn take(&self, permits: u32, patience: Patience) -> Result<Option<Permits>, Error> {
        let term = match &self.lease {
            None => Term::Renewed(self.named.engine.shared.settings.watchdog),
            Some(lease) => Term::Fixed(lease.clone()?),
        };
        let (name, replicas) = (self.named.checked()?.clone(), self.named.replicas());
        let ask = Ask { name, term, patience, permits, replicas, is_anybodys: false, under: None };
        acquire_permits(&self.named.engine, ask).await
    }
}
