use std::time::Duration;

use crate::client::Client;
use crate::error::Error;
use crate::inspection::Inspection;
use crate::lock::Lock;
use crate::owner::Owner;
use turnlock_core::Kind;

/// Many readers or one writer: Redisson's `RReadWriteLock` on the same wire.
///
/// [`read`](ReadWriteLock::read) and [`write`](ReadWriteLock::write) are two locks with all that a [`Lock`] has.
///
/// - Each hold has a lease of its own. Giving one back never shortens another's.
/// - Who writes may read as well, and then give the write lock back: see
///   [`Guard::downgrade`](crate::Guard::downgrade), [`Lock::lock_with`] and [`owned_by`](ReadWriteLock::owned_by).
/// - Who reads and asks to write would wait for itself. It gets
///   [`Error::WouldDeadlock`](crate::Error::WouldDeadlock) if it is known to be the same: the same thread, explicit owner
///   or guard.
/// - A writer that waits leaves word on the store, for three seconds at a time, and as long as that stands new readers of
///   turnlock wait behind it. So a stream of readers cannot keep it out for ever. Java's readers do not know that word.
///   Where a writer holds, readers and writers that wait have the same chance at its end, so a stream of writers does not
///   keep readers out either.
/// - A task that reads and takes a second read lock as a new owner, while a writer waits, would wait for that writer, which
///   waits for it. Where reads nest, use [`Guard::reenter`](crate::Guard::reenter), an owner, or the blocking interface.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let client = turnlock::Client::connect("memory://").await?;
/// let catalogue = client.read_write_lock("catalogue");
/// let one = catalogue.read().lock().await?;
/// let two = catalogue.read().lock().await?; // readers go together
/// assert!(catalogue.write().try_lock().await?.is_none());
/// drop((one, two));
///
/// let writer = catalogue.write().lock().await?;
/// let reader = writer.downgrade().await?; // no other writer comes between
/// # drop(reader);
/// # Ok::<(), turnlock::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct ReadWriteLock {
    read: Lock,
    write: Lock,
}

impl ReadWriteLock {
    pub(crate) fn new(client: &Client, name: &str) -> Self {
        Self { read: client.lock_of(Kind::Read, name), write: client.lock_of(Kind::Write, name) }
    }

    /// The same lock, both sides of it taken with a fixed lease.
    #[must_use = "this makes another handle; the lock is as it was"]
    pub fn lease(&self, lease: Duration) -> Self {
        Self { read: self.read.lease(lease), write: self.write.lease(lease) }
    }

    /// The same lock, both sides of it taken by `owner`, who may read while it writes.
    #[must_use = "this makes another handle; the lock is as it was"]
    pub fn owned_by(&self, owner: &Owner) -> Self {
        Self { read: self.read.owned_by(owner), write: self.write.owned_by(owner) }
    }

    /// The same lock, both sides of it granted only when at least so many replicas of the server have acknowledged it. As
    /// [`Lock::acknowledged_by`].
    #[must_use = "this makes another handle; the lock is as it was"]
    pub fn acknowledged_by(&self, replicas: u32) -> Self {
        Self { read: self.read.acknowledged_by(replicas), write: self.write.acknowledged_by(replicas) }
    }

    /// The side for many at a time.
    pub fn read(&self) -> Lock {
        self.read.clone()
    }

    /// The side for one at a time.
    pub fn write(&self) -> Lock {
        self.write.clone()
    }

    /// Who reads or writes, each with its own lease.
    pub async fn inspect(&self) -> Result<Inspection, Error> {
        self.write.inspect().await
    }
}
