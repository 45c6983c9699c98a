use std::sync::Arc;
use std::time::Instant;

use super::home::Home;
use super::lock::Lock;
use crate::error::Error;
use crate::multi_guard::LostMember;

/// As [`turnlock::MultiGuard`](crate::MultiGuard), for programs without a runtime.
#[must_use = "a guard that is not kept is dropped, and the locks with it"]
#[derive(Debug)]
pub struct MultiGuard {
    // Dropped before the homes, so that their threads are there to do its releases.
    inner: crate::MultiGuard,
    /// Of each member's client; the first is the one to block on.
    homes: Vec<Arc<Home>>,
}

impl MultiGuard {
    pub(super) fn new(guard: crate::MultiGuard, locks: &[Lock]) -> Self {
        Self { inner: guard, homes: locks.iter().map(|lock| Arc::clone(&lock.bridge().home)).collect() }
    }

    /// As [`turnlock::MultiGuard::held`](crate::MultiGuard::held).
    pub fn held(&self) -> usize {
        self.inner.held()
    }

    /// As [`turnlock::MultiGuard::token`](crate::MultiGuard::token).
    pub fn token(&self, member: usize) -> Option<u64> {
        self.inner.token(member)
    }

    /// As [`turnlock::MultiGuard::unlock`](crate::MultiGuard::unlock).
    pub fn unlock(self) -> Result<(), Error> {
        self.homes[0].block_on(self.inner.unlock())
    }

    /// Blocks until too few members are left. As [`turnlock::MultiGuard::lost`](crate::MultiGuard::lost).
    pub fn wait_lost(&self) -> LostMember {
        self.homes[0].block_on(self.inner.lost())
    }

    /// As [`turnlock::MultiGuard::is_valid`](crate::MultiGuard::is_valid).
    pub fn is_valid(&self) -> bool {
        self.inner.is_valid()
    }

    /// As [`turnlock::MultiGuard::valid_until`](crate::MultiGuard::valid_until).
    pub fn valid_until(&self) -> Instant {
        self.inner.valid_until()
    }

    /// Runs `body` under this guard, which is given back afterwards.
    pub(super) fn run<T>(self, body: impl FnOnce(&Self) -> T) -> Result<T, Error> {
        let output = body(&self);
        let lost = self.inner.group().lost();
        match (self.unlock(), lost) {
            (_, Some(lost)) => Err(lost.into_error()),
            (Err(error @ Error::Lost { .. }), None) => Err(error),
            (Err(error), None) => {
                tracing::warn!(%error, "the locks of a finished body could not be given back");
                Ok(output)
            }
            (Ok(()), None) => Ok(output),
        }
    }
}
