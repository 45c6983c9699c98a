use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use turnlock_core::ClientId;

use crate::builder::Builder;
use crate::engine::{Engine, Errands};
use crate::error::Error;
use crate::lock::Lock;
use crate::owner::Owner;

/// A client of a store: the door to all locks on it. Cheap to clone; one for a whole program is right.
///
/// A client lives on the tokio runtime on which it was made: its renewals and the releases of dropped guards run there.
/// Its locks may be used on any runtime, and on none.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let client = turnlock::Client::connect("memory://").await?;
/// let guard = client.lock("orders").lock().await?;
/// drop(guard);
/// let left = client.shutdown(std::time::Duration::from_secs(5)).await;
/// assert!(left.is_clean());
/// # Ok::<(), turnlock::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    engine: Arc<Engine>,
    owners: Arc<AtomicU64>,
}

/// What was left when a shutdown ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "locks that are still held stay held until their leases end"]
pub struct Leftovers {
    /// Locks that a guard still held. They are not renewed any more, and end with their leases.
    pub held: usize,
    /// Releases, and requests without a caller, that were not finished.
    pub unfinished: usize,
}

impl Leftovers {
    /// Whether nothing was left.
    pub fn is_clean(&self) -> bool {
        self.held == 0 && self.unfinished == 0
    }
}

impl Client {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self { engine, owners: Arc::default() }
    }

    /// Connects to the store that `url` names, with the default settings.
    ///
    /// `redis://[user:password@]host[:port][/database]` for a Redis server, `memory://` for a store of its own in this
    /// process, `memory://NAME` for one that all clients of this process share.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder().connect(url).await
    }

    /// Settings for a client.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The lock of this name. Nothing is sent; a name that cannot be is reported when the lock is used.
    pub fn lock(&self, name: &str) -> Lock {
        Lock::new(Arc::clone(&self.engine), name)
    }

    /// A new owner, for [`Lock::owned_by`].
    pub fn owner(&self) -> Owner {
        Owner::new(&self.engine, self.owners.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// The identity of this client: the first part of its owners on the wire.
    pub fn id(&self) -> ClientId {
        self.engine.shared.client
    }

    /// The work under way, for one who must see it finished.
    pub(crate) fn errands(&self) -> Errands {
        self.engine.shared.errands.clone()
    }

    /// Takes no new locks, lets those who wait fail with [`Error::ShuttingDown`], and waits until every guard is gone and
    /// every release is confirmed, or `limit` is over.
    ///
    /// No lock is taken away from a living guard. What is still held at the end is not renewed any more: its guard hears
    /// [`lost`](crate::Guard::lost) when the lease ends.
    ///
    /// Cancelling: the client stays closed for new locks; what is held goes on being renewed.
    pub async fn shutdown(&self, limit: Duration) -> Leftovers {
        let shared = &self.engine.shared;
        let (held, unfinished) = shared.on_runtime(self.engine.shutdown(limit)).await;
        Leftovers { held, unfinished }
    }
}
