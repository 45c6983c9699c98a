use std::sync::Arc;
use std::time::Duration;

use turnlock_core::Kind;
use turnlock_core::model::CounterOp;

use crate::engine::{Engine, WaitLimit, checked_number, until_zero};
use crate::lock::Named;
use crate::{Error, Inspection};

/// A handle to a count-down latch: Redisson's `RCountDownLatch`.
///
/// The latch opens when its count reaches zero. A latch that does not exist is open: it was never set, has reached zero,
/// or its store has lost its data.
///
/// Operations are idempotent: the store keeps each request id for an hour, and a request without a reply is retried for
/// at most 50 minutes. Waiters are woken by a message, and check at least once a second. They also see a deletion, which
/// waiters of Redisson do not.
///
/// # Examples
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
#[must_use = "a handle does nothing: call `wait()` or `count_down()`"]
pub struct Latch {
    named: Named,
}

impl Latch {
    pub(crate) fn new(engine: &Arc<Engine>, name: &str) -> Self {
        Self { named: Named::new(engine, Kind::Latch, name) }
    }

    /// Returns the name of the latch. Empty if the given name is not valid.
    pub fn name(&self) -> &str {
        self.named.as_str()
    }

    /// Sets the count if the latch is not set. Returns `true` if this call set it.
    ///
    /// # Cancel safety
    ///
    /// Once begun, it is finished in the background.
    pub async fn try_set_count(&self, count: u32) -> Result<bool, Error> {
        let count = u64::from(checked_number("count", count)?);
        self.named.perform_once(CounterOp::SetOnce(count)).await
    }

    /// Decrements the count. Returns what is left; zero opens the latch.
    ///
    /// # Cancel safety
    ///
    /// Once begun, it is finished in the background.
    pub async fn count_down(&self) -> Result<i64, Error> {
        self.named.perform(CounterOp::CountDown).await
    }

    /// Returns the count. Zero if the latch is open or was never set.
    pub async fn count(&self) -> Result<i64, Error> {
        Ok(self.named.snapshot().await?.number.unwrap_or_default().max(0))
    }

    /// Waits until the latch is open.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn wait(&self) -> Result<(), Error> {
        self.wait_until(WaitLimit::Endless).await.map(drop)
    }

    /// Waits until the latch is open, at most `wait`. Returns `true` if it is open.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn wait_for(&self, wait: Duration) -> Result<bool, Error> {
        self.wait_until(WaitLimit::of(wait)).await
    }

    /// Deletes the latch, which opens it. Returns `true` if it existed.
    ///
    /// # Cancel safety
    ///
    /// Once begun, it is finished in the background.
    pub async fn delete(&self) -> Result<bool, Error> {
        self.named.perform_once(CounterOp::Delete).await
    }

    /// Returns the count, and the number of waiters of this client.
    pub async fn inspect(&self) -> Result<Inspection, Error> {
        self.named.inspect().await
    }

    async fn wait_until(&self, wait_limit: WaitLimit) -> Result<bool, Error> {
        let engine = &self.named.engine;
        engine.on_runtime(until_zero(engine, self.named.checked()?, wait_limit)).await
    }
}
