use std::time::Duration;

use super::bridge::{Bridge, blocking_form};
use crate::{Error, Inspection};

blocking_form! {
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
    #[must_use = "a handle holds nothing: call `wait()` or `count_down()`"]
    handle Latch
}

impl Latch {
    delegate! { Latch:
        /// Returns the name of the latch. Empty if the given name is not valid.
        get name(&self) -> &str;
        /// Sets the count if the latch is not set. Returns `true` if this call set it.
        block try_set_count(&self, count: u32) -> Result<bool, Error>;
        /// Decrements the count, and returns what is left. Zero opens the latch.
        block count_down(&self) -> Result<i64, Error>;
        /// Returns the count.
        block count(&self) -> Result<i64, Error>;
        /// Deletes the latch, which opens it. Returns `true` if it existed.
        block delete(&self) -> Result<bool, Error>;
        /// Returns the count, and the number of waiters of this client.
        block inspect(&self) -> Result<Inspection, Error>;
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
}
