use std::time::Duration;

use super::bridge::Bridge;
use super::interrupt::Interrupt;
use crate::error::Error;
use crate::inspection::Inspection;

/// As [`turnlock::Latch`](crate::Latch), for programs without a runtime.
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
pub struct Latch {
    inner: crate::Latch,
    bridge: Bridge,
}

impl Latch {
    pub(super) fn new(inner: crate::Latch, bridge: Bridge) -> Self {
        Self { inner, bridge }
    }

    /// The same, whose waits end with [`Error::Interrupted`] when `interrupt` is raised.
    #[must_use = "this makes another handle; nothing else is changed"]
    pub fn interruptible(&self, interrupt: &Interrupt) -> Self {
        Self { bridge: self.bridge.interruptible(interrupt), ..self.clone() }
    }

    /// The name, as it was given.
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// As [`turnlock::Latch::try_set_count`](crate::Latch::try_set_count).
    pub fn try_set_count(&self, count: u32) -> Result<bool, Error> {
        self.bridge.block_on(self.inner.try_set_count(count))
    }

    /// As [`turnlock::Latch::count_down`](crate::Latch::count_down).
    pub fn count_down(&self) -> Result<i64, Error> {
        self.bridge.block_on(self.inner.count_down())
    }

    /// As [`turnlock::Latch::count`](crate::Latch::count).
    pub fn count(&self) -> Result<i64, Error> {
        self.bridge.block_on(self.inner.count())
    }

    /// As [`turnlock::Latch::wait`](crate::Latch::wait).
    pub fn wait(&self) -> Result<(), Error> {
        self.bridge.wait(self.name(), self.inner.wait())
    }

    /// As [`turnlock::Latch::wait_for`](crate::Latch::wait_for).
    pub fn wait_for(&self, wait: Duration) -> Result<bool, Error> {
        self.bridge.wait(self.name(), self.inner.wait_for(wait))
    }

    /// As [`turnlock::Latch::delete`](crate::Latch::delete).
    pub fn delete(&self) -> Result<bool, Error> {
        self.bridge.block_on(self.inner.delete())
    }

    /// As [`turnlock::Latch::inspect`](crate::Latch::inspect).
    pub fn inspect(&self) -> Result<Inspection, Error> {
        self.bridge.block_on(self.inner.inspect())
    }
}
