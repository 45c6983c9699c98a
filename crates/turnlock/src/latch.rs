use std::sync::Arc;
use std::time::Duration;

use turnlock_core::Kind;
use turnlock_core::model::Deed;

use crate::engine::{Engine, Patience, checked_number, until_zero};
use crate::error::Error;
use crate::inspection::Inspection;
use crate::named::Named;

/// A count that goes down to zero once, and lets those pass who wait for that. Redisson's `RCountDownLatch` on the same
/// wire.
///
/// **Guarantee.** A count-down counts once, also when its answer was lost and it is sent again: the store remembers
/// requests for an hour, and a request that got no answer is repeated for 50 minutes at the most. Waiters are woken by a message, and look by themselves within a second, also when the latch
/// was deleted, which Java's waiters do not hear of.
///
/// **Limits.** A latch that is not there counts as open: one that was never set, that has come to zero, or whose store has
/// lost its data.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let client = turnlock::Client::connect("memory://").await?;
/// let started = client.latch("workers-started");
/// started.try_set_count(2).await?;
/// let all = tokio::spawn({
///     let started = started.clone();
///     async move { started.wait().await }
/// });
/// started.count_down().await?;
/// started.count_down().await?;
/// all.await.unwrap()?;
/// # Ok::<(), turnlock::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Latch {
    named: Named,
}

impl Latch {
    pub(crate) fn new(engine: &Arc<Engine>, name: &str) -> Self {
        Self { named: Named::new(engine, Kind::Latch, name) }
    }

    /// The name, as it was given. Empty when the given one is not valid.
    pub fn name(&self) -> &str {
        self.named.as_str()
    }

    /// Sets the count, if the latch is not set. Whether this did it.
    ///
    /// Cancelling: once begun, it is finished in the background.
    pub async fn try_set_count(&self, count: u32) -> Result<bool, Error> {
        Ok(self.named.perform(Deed::SetOnce(u64::from(checked_number(count)?))).await? == 1)
    }

    /// Counts one down. What is left; zero opens the latch.
    ///
    /// Cancelling: once begun, it is finished in the background.
    pub async fn count_down(&self) -> Result<i64, Error> {
        self.named.perform(Deed::CountDown).await
    }

    /// What is left to count down. Zero when the latch is open, or was never set.
    pub async fn count(&self) -> Result<i64, Error> {
        Ok(self.inspect().await?.available.unwrap_or_default().max(0))
    }

    /// Waits until the latch is open, as long as it takes.
    ///
    /// Cancelling: safe, nothing is changed.
    pub async fn wait(&self) -> Result<(), Error> {
        self.wait_until(Patience::Endless).await.map(drop)
    }

    /// Waits until the latch is open, for `wait` at the most. Whether it is.
    ///
    /// Cancelling: safe, nothing is changed.
    pub async fn wait_for(&self, wait: Duration) -> Result<bool, Error> {
        self.wait_until(Patience::of(wait)).await
    }

    /// Removes the latch, which opens it. Whether it was there.
    ///
    /// Cancelling: once begun, it is finished in the background.
    pub async fn delete(&self) -> Result<bool, Error> {
        Ok(self.named.perform(Deed::Delete).await? == 1)
    }

    /// What is left to count down, and how many wait here.
    pub async fn inspect(&self) -> Result<Inspection, Error> {
        self.named.inspect().await
    }

    async fn wait_until(&self, patience: Patience) -> Result<bool, Error> {
        let shared = &self.named.engine.shared;
        shared.on_runtime(until_zero(shared, self.named.checked()?, patience)).await
    }
}
