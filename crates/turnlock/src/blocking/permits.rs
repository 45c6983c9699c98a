use std::sync::Arc;
use std::time::{Duration, Instant};

use super::client_thread::ClientThread;
use crate::error::{Error, LostReason};
use crate::guard_error::GuardError;

/// Permits of a semaphore: [`turnlock::Permits`](crate::Permits). Dropping it releases them in the background.
#[must_use = "the permits are released when this is dropped: bind it to a variable"]
#[derive(Debug)]
pub struct Permits {
    // Dropped before the thread, which runs the release.
    inner: crate::Permits,
    thread: Arc<ClientThread>,
}

impl Permits {
    pub(super) fn new(inner: crate::Permits, thread: Arc<ClientThread>) -> Self {
        Self { inner, thread }
    }

    /// Returns the name of the semaphore.
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// Returns how many permits these are.
    pub fn count(&self) -> u32 {
        self.inner.count()
    }

    /// Returns the ids of the permits on the store: [`turnlock::Permits::ids`](crate::Permits::ids).
    pub fn ids(&self) -> Vec<String> {
        self.inner.ids()
    }

    /// Returns how many replicas acknowledged: [`turnlock::Permits::replicas`](crate::Permits::replicas).
    pub fn replicas(&self) -> u32 {
        self.inner.replicas()
    }

    /// Releases the permits, and waits for the store: [`turnlock::Permits::release`](crate::Permits::release).
    pub fn release(self) -> Result<(), Error> {
        self.thread.block_on(self.inner.release())
    }

    /// Lets the store release the permits after `time`:
    /// [`turnlock::Permits::release_after`](crate::Permits::release_after).
    pub fn release_after(self, time: Duration) -> Result<(), GuardError<Self>> {
        let Self { inner, thread } = self;
        let outcome = thread.block_on(inner.release_after(time));
        outcome.map_err(|error| error.map(|inner| Self { inner, thread }))
    }

    /// Leaves the permits taken: [`turnlock::Permits::detach`](crate::Permits::detach).
    pub fn detach(self) {
        self.inner.detach();
    }

    /// Writes since when the permits are taken: [`turnlock::Permits::announce`](crate::Permits::announce).
    pub fn announce(&self) -> Result<(), Error> {
        self.thread.block_on(self.inner.announce())
    }

    /// Blocks until the permits are lost: [`turnlock::Permits::lost`](crate::Permits::lost).
    pub fn wait_lost(&self) -> LostReason {
        self.thread.block_on(self.inner.lost())
    }

    /// Returns `true` if the permits are held: [`turnlock::Permits::is_valid`](crate::Permits::is_valid).
    pub fn is_valid(&self) -> bool {
        self.inner.is_valid()
    }

    /// Returns until when the permits are held: [`turnlock::Permits::valid_until`](crate::Permits::valid_until).
    pub fn valid_until(&self) -> Instant {
        self.inner.valid_until()
    }
}
