use std::sync::Arc;
use std::time::Duration;

use turnlock_core::model::Deed;
use turnlock_core::{Kind, Lease};

use crate::engine::{Ask, Engine, Patience, Term, acquire_permits, checked_number};
use crate::error::Error;
use crate::inspection::Inspection;
use crate::named::{Named, endless};
use crate::permits::Permits;

/// A number of permits: at most so many at a time. Redisson's `RSemaphore` on the same wire.
///
/// The permits have no owners and no leases: those of a process that dies stay out. A
/// [`PermitSemaphore`](crate::PermitSemaphore) gets them back.
///
/// **Guarantee.** A request counts once, also when its answer was lost and it is sent again: the store remembers
/// requests for an hour, and a request that got no answer is repeated for 50 minutes at the most, in the background, too.
/// No more permits are out than were set, as long as the store keeps its data and nobody
/// [releases](Semaphore::release) what it did not take. After a fail-over that forgot an acquire its permits are free on the
/// new master: they are not added when they are released, and [`Permits::release`] is [`Error::Lost`]. That holds for 50
/// minutes from the acquire; permits that were held for longer are always added.
///
/// **Limits.** Waiters are woken by a message and look by themselves within a second. Between clients there is no order.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let client = turnlock::Client::connect("memory://").await?;
/// let slots = client.semaphore("slots");
/// slots.try_set_permits(2).await?; // the first one to say so
/// let (one, two) = (slots.acquire(1).await?, slots.acquire(1).await?);
/// assert!(slots.try_acquire(1).await?.is_none());
/// drop((one, two));
/// # Ok::<(), turnlock::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Semaphore {
    named: Named,
}

impl Semaphore {
    pub(crate) fn new(engine: &Arc<Engine>, name: &str) -> Self {
        Self { named: Named::new(engine, Kind::Semaphore, name) }
    }

    /// The same semaphore, whose permits count as taken only when at least so many replicas of the server have acknowledged
    /// it. As [`Lock::acknowledged_by`](crate::Lock::acknowledged_by).
    ///
    /// The grant and its memory are acknowledged together; releases and the other steps on the number are not.
    #[must_use = "this makes another handle; the semaphore is as it was"]
    pub fn acknowledged_by(&self, replicas: u32) -> Self {
        Self { named: self.named.acknowledged_by(replicas) }
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

    /// Takes `permits` permits together, and waits for them as long as it takes.
    ///
    /// Waiters of one client are served in the order of their arrival, so one that wants many is not passed by those that
    /// want few.
    ///
    /// Cancelling: safe. A request that is under way is finished in the background, and what it got is given back.
    pub async fn acquire(&self, permits: u32) -> Result<Permits, Error> {
        endless(self.take(permits, Patience::Endless).await)
    }

    /// Takes `permits` permits together if they are free, and does not wait.
    ///
    /// Cancelling: as for [`acquire`](Semaphore::acquire).
    pub async fn try_acquire(&self, permits: u32) -> Result<Option<Permits>, Error> {
        self.take(permits, Patience::None).await
    }

    /// Takes `permits` permits together, and waits for them for `wait` at the most.
    ///
    /// Cancelling: as for [`acquire`](Semaphore::acquire).
    pub async fn try_acquire_for(&self, permits: u32, wait: Duration) -> Result<Option<Permits>, Error> {
        self.take(permits, Patience::of(wait)).await
    }

    /// Gives `permits` permits back that need not have been taken here: Java's way, where the place that releases is not the
    /// place that acquired. How many are free then.
    ///
    /// Cancelling: once begun, it is finished in the background.
    pub async fn release(&self, permits: u32) -> Result<i64, Error> {
        self.named.perform(Deed::Release(checked_number(permits)?)).await
    }

    /// Adds to the number of permits, or takes from it; it may fall below zero. How many are free then.
    ///
    /// Cancelling: once begun, it is finished in the background.
    pub async fn add_permits(&self, difference: i32) -> Result<i64, Error> {
        self.named.perform(Deed::Add(i64::from(difference))).await
    }

    /// Takes all free permits, for good. How many there were.
    ///
    /// Cancelling: once begun, it is finished in the background.
    pub async fn drain(&self) -> Result<i64, Error> {
        self.named.perform(Deed::Drain).await
    }

    /// Removes the semaphore. Whether it was there.
    ///
    /// Cancelling: once begun, it is finished in the background.
    pub async fn delete(&self) -> Result<bool, Error> {
        Ok(self.named.perform(Deed::Delete).await? == 1)
    }

    /// How many permits are free. Zero when none were ever set.
    pub async fn available(&self) -> Result<i64, Error> {
        Ok(self.inspect().await?.available.unwrap_or_default())
    }

    /// How many permits are free, and how many wait here.
    pub async fn inspect(&self) -> Result<Inspection, Error> {
        self.named.inspect().await
    }

    pub(crate) async fn take(&self, permits: u32, patience: Patience) -> Result<Option<Permits>, Error> {
        let term = Term::Fixed(Lease::LONGEST);
        let (name, replicas) = (self.named.checked()?.clone(), self.named.replicas());
        let ask = Ask { name, term, patience, permits, replicas, is_anybodys: false, under: None };
        acquire_permits(&self.named.engine, ask).await
    }
}

#[cfg(test)]
mod tests {
    use turnlock_core::Moment;
    use turnlock_core::model::Claim;
    use turnlock_testkit::{RedisServer, TempDir};

    use super::*;
    use crate::client::Client;
    use crate::clock;
    use crate::engine::Hold;

    /// What is granted is believed in, and the store does not know of it: as after a promotion that forgot it.
    async fn give_back_what_the_store_does_not_know(url: &str) {
        let client = Client::connect(url).await.expect("a store");
        let slots = client.semaphore("slots");
        assert!(slots.try_set_permits(3).await.expect("an answer"));
        let (shared, name) = (&slots.named.engine.shared, slots.named.checked().expect("a good name"));
        let term = Term::Fixed(Lease::LONGEST);
        let hold = || {
            let owner = shared.new_owner();
            Hold::granted(Claim { permits: 2, ..Claim::new(name, &owner, 1) }, term, clock::now(), None)
        };
        let lost = shared.give_back(Arc::new(hold()), term).await;
        assert!(matches!(lost, Err(Error::Lost { .. })), "{url}: {lost:?}");
        assert_eq!(slots.available().await.expect("an answer"), 3, "{url}: nothing was taken there");
        // Long ago: then the store may just have forgotten who took them.
        let old = hold().remembered_until(Moment::from_micros(0));
        shared.give_back(Arc::new(old), term).await.expect("it may stand");
        assert_eq!(slots.available().await.expect("an answer"), 5, "{url}: permits are out for good");
    }

    #[tokio::test]
    async fn permits_that_the_store_never_gave_out_do_not_come_back_to_it() {
        let (server, directory) = (RedisServer::start().await, TempDir::new());
        give_back_what_the_store_does_not_know("memory://").await;
        give_back_what_the_store_does_not_know(&server.url()).await;
        #[cfg(all(feature = "file", unix))]
        give_back_what_the_store_does_not_know(&format!("file:{}", directory.path().join("locks").display()))
            .await;
        drop(directory);
    }
}
