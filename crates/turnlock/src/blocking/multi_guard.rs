use std::sync::Arc;
use std::time::Instant;

use super::client_thread::ClientThread;
use super::lock::Lock;
use crate::error::Error;
use crate::multi_guard::LostMember;

/// Several held locks: [`turnlock::MultiGuard`](crate::MultiGuard). Dropping it releases them in the background.
#[must_use = "the locks are released when the guard is dropped: bind it to a variable"]
#[derive(Debug)]
pub struct MultiGuard {
    // Dropped before the threads, which run the releases.
    inner: crate::MultiGuard,
    /// The threads of the members' clients. The first one runs what this guard blocks on.
    threads: Vec<Arc<ClientThread>>,
}

impl MultiGuard {
    pub(super) fn new(guard: crate::MultiGuard, locks: &[Lock]) -> Self {
        Self { inner: guard, threads: locks.iter().map(|lock| Arc::clone(&lock.bridge().thread)).collect() }
    }

    /// Returns how many members are held: [`turnlock::MultiGuard::held`](crate::MultiGuard::held).
    pub fn held(&self) -> usize {
        self.inner.held()
    }

    /// Returns the fencing token of a member: [`turnlock::MultiGuard::token`](crate::MultiGuard::token).
    pub fn token(&self, member: usize) -> Option<u64> {
        self.inner.token(member)
    }

    /// Releases all members, and waits for the stores: [`turnlock::MultiGuard::unlock`](crate::MultiGuard::unlock).
    pub fn unlock(self) -> Result<(), Error> {
        self.threads[0].block_on(self.inner.unlock())
    }

    /// Blocks until too few members are held: [`turnlock::MultiGuard::lost`](crate::MultiGuard::lost).
    pub fn wait_lost(&self) -> LostMember {
        self.threads[0].block_on(self.inner.lost())
    }

    /// Returns `true` if enough members are held: [`turnlock::MultiGuard::is_valid`](crate::MultiGuard::is_valid).
    pub fn is_valid(&self) -> bool {
        self.inner.is_valid()
    }

    /// Returns until when enough members are held:
    /// [`turnlock::MultiGuard::valid_until`](crate::MultiGuard::valid_until).
    pub fn valid_until(&self) -> Instant {
        self.inner.valid_until()
    }

    /// Runs `body` under this guard, and releases it.
    pub(super) fn run<T>(self, body: impl FnOnce(&Self) -> T) -> Result<T, Error> {
        let output = body(&self);
        let lost = self.inner.group().lost();
        match (self.unlock(), lost) {
            (_, Some(lost)) => Err(lost.into_error()),
            (Err(error @ Error::Lost { .. }), None) => Err(error),
            (Err(error), None) => {
                tracing::warn!(error = %error.with_causes(), "release failed after the body returned");
                Ok(output)
            }
            (Ok(()), None) => Ok(output),
        }
    }
}
