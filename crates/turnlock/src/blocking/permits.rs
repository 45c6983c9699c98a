use std::sync::Arc;
use std::time::{Duration, Instant};

use super::home::Home;
use crate::error::{Error, LostReason};

/// As [`turnlock::Permits`](crate::Permits), for programs without a runtime.
#[must_use = "permits that are not kept are dropped, and thereby given back"]
#[derive(Debug)]
pub struct Permits {
    // Dropped before the home, so that the thread is there to give them back.
    inner: crate::Permits,
    home: Arc<Home>,
}

impl Permits {
    pub(super) fn new(inner: crate::Permits, home: Arc<Home>) -> Self {
        Self { inner, home }
    }

    /// The name of the semaphore.
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// How many permits these are.
    pub fn count(&self) -> u32 {
        self.inner.count()
    }

    /// As [`turnlock::Permits::ids`](crate::Permits::ids).
    pub fn ids(&self) -> Vec<String> {
        self.inner.ids()
    }

    /// As [`turnlock::Permits::replicas`](crate::Permits::replicas).
    pub fn replicas(&self) -> u32 {
        self.inner.replicas()
    }

    /// As [`turnlock::Permits::release`](crate::Permits::release).
    pub fn release(self) -> Result<(), Error> {
        self.home.block_on(self.inner.release())
    }

    /// As [`turnlock::Permits::keep_for`](crate::Permits::keep_for).
    pub fn keep_for(self, time: Duration) -> Result<(), Error> {
        self.home.block_on(self.inner.keep_for(time))
    }

    /// As [`turnlock::Permits::forget`](crate::Permits::forget).
    pub fn forget(self) {
        self.inner.forget();
    }

    /// Blocks until the permits are lost. As [`turnlock::Permits::lost`](crate::Permits::lost).
    pub fn wait_lost(&self) -> LostReason {
        self.home.block_on(self.inner.lost())
    }

    /// As [`turnlock::Permits::is_valid`](crate::Permits::is_valid).
    pub fn is_valid(&self) -> bool {
        self.inner.is_valid()
    }

    /// As [`turnlock::Permits::valid_until`](crate::Permits::valid_until).
    pub fn valid_until(&self) -> Instant {
        self.inner.valid_until()
    }
}
