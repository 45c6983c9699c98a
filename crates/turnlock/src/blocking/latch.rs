use std::time::Duration;

use super::bridge::Bridge;
use super::interrupt::Interrupt;
use crate::error::Error;
use crate::inspection::Inspection;

/// A handle to a count-down latch: [`turnlock::Latch`](crate::Latch).
///
/// # Examples
///
/// ```
/// let client = turnlock::blocking::Client::connect("memory://")?;
/// let ready = client.latch("ready");
/// ready.try_set_count(1)?;
/// std::thread::scope(|scope| {
///     let waiter = scope.spawn(|| ready.wait());
///     ready.count_down().unwrap();
///     waiter.join().unwrap()
/// })?;
/// # Ok::<(), turnlock::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a handle holds nothing: call `wait()` or `count_down()`"]
pub struct Latch {
    inner: crate::Latch,
    bridge: Bridge,
}

impl Latch {
    pub(super) fn new(inner: crate::Latch, bridge: Bridge) -> Self {
        Self { inner, bridge }
    }

    /// Makes waits interruptible: they end with [`Error::Interrupted`] when `interrupt` is raised.
    pub fn interruptible(&self, interrupt: &Interrupt) -> Self {
        Self { bridge: self.bridge.interruptible(interrupt), ..self.clone() }
    }

    /// Returns the name of the latch. Empty if the given name is not valid.
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// Sets the count if the latch is not set: [`turnlock::Latch::try_set_count`](crate::Latch::try_set_count).
    ///
    /// Returns `true` if this call set it.
    pub fn try_set_count(&self, count: u32) -> Result<bool, Error> {
        self.bridge.block_on(self.inner.try_set_count(count))
    }

    /// Decrements the count, and returns what is left: [`turnlock::Latch::count_down`](crate::Latch::count_down).
    ///
    /// Zero opens the latch.
    pub fn count_down(&self) -> Result<i64, Error> {
        self.bridge.block_on(self.inner.count_down())
    }

    /// Returns the count: [`turnlock::Latch::count`](crate::Latch::count).
    pub fn count(&self) -> Result<i64, Error> {
        self.bridge.block_on(self.inner.count())
    }

    /// Waits until the latch is open: [`turnlock::Latch::wait`](crate::Latch::wait).
    pub fn wait(&self) -> Result<(), Error> {
        self.bridge.wait(self.name(), self.inner.wait())
    }

    /// Waits until the latch is open, at most `wait`: [`turnlock::Latch::wait_for`](crate::Latch::wait_for).
    ///
    /// Returns `true` if it is open.
    pub fn wait_for(&self, wait: Duration) -> Result<bool, Error> {
        self.bridge.wait(self.name(), self.inner.wait_for(wait))
    }

    /// Deletes the latch, which opens it: [`turnlock::Latch::delete`](crate::Latch::delete).
    ///
    /// Returns `true` if it existed.
    pub fn delete(&self) -> Result<bool, Error> {
        self.bridge.block_on(self.inner.delete())
    }

    /// Returns the count, and the number of waiters of this client:
    /// [`turnlock::Latch::inspect`](crate::Latch::inspect).
    pub fn inspect(&self) -> Result<Inspection, Error> {
        self.bridge.block_on(self.inner.inspect())
    }
}
