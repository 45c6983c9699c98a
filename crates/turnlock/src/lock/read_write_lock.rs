use std::ops::Deref;
use std::time::Duration;

use futures_util::TryFutureExt;

use crate::{Error, Guard, GuardError, Inspection, Lock, Owner, TryAcquire};

/// A handle to a lock for many readers or one writer: Redisson's `RReadWriteLock`.
///
/// [`read`](ReadWriteLock::read) and [`write`](ReadWriteLock::write) acquire. [`reader`](ReadWriteLock::reader) and
/// [`writer`](ReadWriteLock::writer) are handles of type [`Lock`] for its other methods.
///
/// - Each hold has its own lease. The end of one never shortens another.
/// - The owner of the write lock can acquire the read lock as well: see [`WriteGuard::downgrade`], [`Lock::lock_with`]
///   and [`with_owner`](ReadWriteLock::with_owner).
/// - An owner that holds the read lock and requests the write lock would wait for itself. `write` then fails with
///   [`Error::WouldDeadlock`](crate::Error::WouldDeadlock), for the same thread, explicit owner or guard; `try_write` is
///   busy. For the same task, a warning is logged after a second.
/// - A waiting writer registers on the store, for three seconds at a time, and new readers of turnlock wait behind it.
///   So a stream of readers does not starve it. Readers of Redisson do not honour this. When a writer releases, waiting
///   readers and writers have the same chance.
/// - A task that reads and acquires a second read lock as a new owner, while a writer waits, waits for that writer,
///   which waits for it. For nested reads use [`Guard::reenter`], an owner, or the blocking interface.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let client = turnlock::Client::connect("memory://").await?;
/// let catalogue = client.read_write_lock("catalogue");
/// let one = catalogue.read().await?;
/// let two = catalogue.read().await?; // readers share the lock
/// assert!(catalogue.try_write().await?.is_busy());
/// drop((one, two));
///
/// let writer = catalogue.write().await?;
/// let reader = writer.downgrade().await?; // no other writer can come between
/// # drop(reader);
/// # Ok::<(), turnlock::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
#[must_use = "a handle holds nothing: call `read()` or `write()`"]
pub struct ReadWriteLock {
    pub(crate) read: Lock,
    pub(crate) write: Lock,
}

impl ReadWriteLock {
    /// Sets a fixed lease for both sides: [`Lock::with_lease`].
    pub fn with_lease(&self, lease: Duration) -> Self {
        Self { read: self.read.with_lease(lease), write: self.write.with_lease(lease) }
    }

    /// Acquires both sides as `owner`, which can read while it writes.
    pub fn with_owner(&self, owner: &Owner) -> Self {
        Self { read: self.read.with_owner(owner), write: self.write.with_owner(owner) }
    }

    /// Requires `replicas` replicas to acknowledge each grant: [`Lock::with_replicas`].
    pub fn with_replicas(&self, replicas: u32) -> Self {
        Self { read: self.read.with_replicas(replicas), write: self.write.with_replicas(replicas) }
    }

    /// Returns the name of the lock. Empty if the given name is not valid.
    pub fn name(&self) -> &str {
        self.write.name()
    }

    /// Acquires the read lock, and waits until no writer holds it: [`Lock::lock`].
    #[track_caller]
    pub fn read(&self) -> impl Future<Output = Result<Guard, Error>> + Send + use<'_> {
        self.read.lock()
    }

    /// Acquires the read lock if it is free, and does not wait: [`Lock::try_lock`].
    #[track_caller]
    pub fn try_read(&self) -> impl Future<Output = Result<TryAcquire<Guard>, Error>> + Send + use<'_> {
        self.read.try_lock()
    }

    /// Acquires the write lock, and waits until the lock is free: [`Lock::lock`].
    #[track_caller]
    pub fn write(&self) -> impl Future<Output = Result<WriteGuard, Error>> + Send + use<'_> {
        self.write.lock().map_ok(WriteGuard::new)
    }

    /// Acquires the write lock if it is free, and does not wait: [`Lock::try_lock`].
    #[track_caller]
    pub fn try_write(&self) -> impl Future<Output = Result<TryAcquire<WriteGuard>, Error>> + Send + use<'_> {
        self.write.try_lock().map_ok(|outcome| outcome.map(WriteGuard::new))
    }

    /// Returns a handle to the read lock.
    pub fn reader(&self) -> Lock {
        self.read.clone()
    }

    /// Returns a handle to the write lock.
    pub fn writer(&self) -> Lock {
        self.write.clone()
    }

    /// Returns the readers or the writer, each with its own lease.
    pub async fn inspect(&self) -> Result<Inspection, Error> {
        self.write.inspect().await
    }
}

/// A held write lock of a [`ReadWriteLock`](crate::ReadWriteLock).
///
/// It is a [`Guard`] that can be [downgraded](WriteGuard::downgrade).
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let client = turnlock::Client::connect("memory://").await?;
/// let catalogue = client.read_write_lock("catalogue");
/// let writer = catalogue.write().await?;
/// let reader = writer.downgrade().await?; // no other writer can come between
/// assert!(catalogue.reader().is_locked().await?);
/// # drop(reader);
/// # Ok::<(), turnlock::Error>(()) }).unwrap();
/// ```
#[must_use = "the lock is released when the guard is dropped: bind it to a variable"]
#[derive(Debug)]
pub struct WriteGuard {
    guard: Guard,
}

impl WriteGuard {
    pub(crate) fn new(guard: Guard) -> Self {
        Self { guard }
    }

    /// Turns the write lock into a read lock. No other writer can come between.
    ///
    /// Waiting readers are woken.
    ///
    /// # Errors
    ///
    /// If the store does not grant the read lock, the [write guard is returned](GuardError::into_guard). If it grants the
    /// read lock and does not confirm the release of the write lock, both are released.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe. Both locks are released.
    pub async fn downgrade(self) -> Result<Guard, GuardError<Self>> {
        let read = match self.guard.read_lock().await {
            Ok(read) => read,
            Err(error) => return Err(GuardError::refused(error, self)),
        };
        self.guard.unlock().await?;
        Ok(read)
    }

    /// Releases the lock, and waits until the store confirms it: [`Guard::unlock`].
    pub async fn unlock(self) -> Result<(), Error> {
        self.guard.unlock().await
    }

    /// Drops the guard, and lets the store release the lock after `time`: [`Guard::unlock_after`].
    pub async fn unlock_after(self, time: Duration) -> Result<(), GuardError<Self>> {
        self.guard.unlock_after(time).await.map_err(|error| error.map(Self::new))
    }

    /// Returns the guard without the type of the write lock.
    pub fn into_guard(self) -> Guard {
        self.guard
    }
}

impl Deref for WriteGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}
