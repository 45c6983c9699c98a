use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use turnlock_core::{self as core, ClientId, OwnerId};

use crate::doctor::{self, Overview, Report};
use crate::engine::Engine;
use crate::lock::Named;
use crate::{
    Deadlock, Error, Found, Identity, Inspection, Kind, Latch, Lock, Owner, PermitSemaphore, ReadWriteLock,
    Semaphore, ShutdownReport, Waits,
};

/// A client of a store, from which all locks are made. Cheap to clone.
///
/// One client for a whole program is enough. It lives on the tokio runtime on which it was made: renewals and the
/// releases of dropped guards run there. Its locks can be used on any runtime.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let client = turnlock::Client::connect("memory://").await?;
/// let guard = client.lock("orders").await?;
/// drop(guard);
/// let report = client.shutdown(std::time::Duration::from_secs(5)).await;
/// assert!(report.is_clean());
/// # Ok::<(), turnlock::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) engine: Arc<Engine>,
    owners: Arc<AtomicU64>,
}

impl Client {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self { engine, owners: Arc::default() }
    }

    /// Returns a handle to the reentrant lock of this name: Redisson's `getLock`.
    ///
    /// `client.lock("orders").await?` acquires it. A name that is not valid is an error when the handle is used.
    pub fn lock(&self, name: &str) -> Lock {
        self.lock_of(core::Kind::Lock, name)
    }

    /// Returns a handle to the fair lock of this name: Redisson's `getFairLock`.
    ///
    /// Granted in order of arrival, over all processes and languages. Waiters are queued on the store. A waiter that gives
    /// up or is cancelled leaves the queue. A waiter whose process dies is skipped within six seconds, if a turnlock client
    /// is in the queue: its waiters send a heartbeat every second, and are removed after four seconds without one.
    ///
    /// A waiter whose process was paused or disconnected for that long has lost its position. It notices within a second,
    /// and queues again at the end. So does one that Redisson removes: its `tryLockAsync`, when it gives up, lowers
    /// the deadlines of all waiters behind it by five minutes. A queue of Java waiters only follows Redisson's deadlines.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let client = turnlock::Client::connect("memory://").await?;
    /// let lock = client.fair_lock("tickets");
    /// let guard = lock.lock().await?;
    /// let waiter = tokio::spawn({
    ///     let lock = lock.clone();
    ///     async move { lock.lock().await }
    /// });
    /// while lock.inspect().await?.queue.is_empty() {
    ///     tokio::task::yield_now().await;
    /// }
    /// assert!(lock.try_lock().await?.is_busy()); // does not overtake the queue
    /// guard.unlock().await?;
    /// let _next = waiter.await.unwrap()?;
    /// # Ok::<(), turnlock::Error>(()) }).unwrap();
    /// ```
    pub fn fair_lock(&self, name: &str) -> Lock {
        self.lock_of(core::Kind::Fair, name)
    }

    /// Returns a handle to the fenced lock of this name: Redisson's `getFencedLock`.
    ///
    /// Each grant has a [token](crate::Guard::token) that is higher than every earlier one. A database that refuses a
    /// token lower than the highest it has seen stops a process that was paused past its lease.
    ///
    /// Tokens do not decrease when the store expires the lock, restarts, is flushed or fails over: a token is above the
    /// last one, above the highest that this client has seen, and not below the server's clock in microseconds.
    ///
    /// After a loss of data, tokens can decrease if the clock of the new server is behind the old one by more than the
    /// outage, and no client that saw the last token takes part. A Java client that acquires first after a loss of data
    /// starts at 1, as Redisson does. A [`lock`](Client::lock) of the same name excludes it, and has no token.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let client = turnlock::Client::connect("memory://").await?;
    /// let lock = client.fenced_lock("account:7");
    /// let first = lock.lock().await?;
    /// let earlier = first.token();
    /// first.unlock().await?;
    /// assert!(lock.lock().await?.token() > earlier);
    /// # Ok::<(), turnlock::Error>(()) }).unwrap();
    /// ```
    pub fn fenced_lock(&self, name: &str) -> Lock {
        self.lock_of(core::Kind::Fenced, name)
    }

    /// Returns a handle to the spin lock of this name: Redisson's `getSpinLock`.
    ///
    /// It has the key of [`lock`](Client::lock), and neither publishes nor subscribes: for servers and proxies without
    /// pub/sub. It excludes, and is excluded by, a lock and a fenced lock of the same name.
    ///
    /// A waiter polls, with random pauses that grow from 2 to 128 ms; a waiter of the same client is woken at once. A
    /// waiter for a lock of the same name notices the release of a spin lock at its next poll, within a second.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let client = turnlock::Client::connect("memory://").await?;
    /// let guard = client.spin_lock("orders").await?;
    /// assert!(client.lock("orders").try_lock().await?.is_busy());
    /// # drop(guard);
    /// # Ok::<(), turnlock::Error>(()) }).unwrap();
    /// ```
    pub fn spin_lock(&self, name: &str) -> Lock {
        self.lock_of(core::Kind::Spin, name)
    }

    /// Returns a handle to the plain lock of this name: `SET NX PX`.
    ///
    /// The format of redis-py, redsync and node-redlock, with which it shares locks. The value is compared before the key
    /// is deleted or extended. It shares no format with Redisson.
    ///
    /// It has no hold count, so it is not reentrant, and no messages, so a waiter polls as with a
    /// [spin lock](Client::spin_lock).
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let client = turnlock::Client::connect("memory://").await?;
    /// let lock = client.plain_lock("orders");
    /// let guard = lock.lock().await?;
    /// assert!(lock.try_lock().await?.is_busy());
    /// assert!(guard.reenter().await.is_err());
    /// # Ok::<(), turnlock::Error>(()) }).unwrap();
    /// ```
    pub fn plain_lock(&self, name: &str) -> Lock {
        self.lock_of(core::Kind::Plain, name)
    }

    /// Returns a handle to the read-write lock of this name: Redisson's `getReadWriteLock`.
    pub fn read_write_lock(&self, name: &str) -> ReadWriteLock {
        let [read, write] = [core::Kind::Read, core::Kind::Write].map(|kind| self.lock_of(kind, name));
        ReadWriteLock { read, write }
    }

    /// Returns a handle to the semaphore of this name: Redisson's `getSemaphore`.
    ///
    /// On Redis, a semaphore and a latch are plain numbers, as in Java: give each its own name.
    pub fn semaphore(&self, name: &str) -> Semaphore {
        Semaphore::new(&self.engine, name)
    }

    /// Returns a handle to the semaphore with leases: Redisson's `getPermitExpirableSemaphore`.
    pub fn permit_semaphore(&self, name: &str) -> PermitSemaphore {
        PermitSemaphore::new(&self.engine, name)
    }

    /// Returns a handle to the count-down latch of this name: Redisson's `getCountDownLatch`.
    pub fn latch(&self, name: &str) -> Latch {
        Latch::new(&self.engine, name)
    }

    pub(crate) fn lock_of(&self, kind: core::Kind, name: &str) -> Lock {
        Lock { named: Named::new(&self.engine, kind, name), owner: None }
    }

    /// Finds held locks, permit semaphores with taken permits, and names that clients wait for.
    ///
    /// A name with an [announced](crate::Builder::announce_waits) wait is found if it has no holder, too. Returns at most
    /// `at_most` names that match `pattern`, sorted. In a pattern, `*` matches any characters, `?` one, `[a-c]` and
    /// `[^a-c]` one of a set or not of it; a backslash escapes the next character. Names are without the key prefix.
    /// Locks of Redisson are found too. A lock that is held during the whole search is found.
    ///
    /// On Redis every key is scanned (`SCAN`), at most a million and for ten seconds; then
    /// [`Found::is_complete`] is `false`. The result is not a snapshot of one moment. Not found: semaphores and latches
    /// without an announced wait, which are plain numbers on Redis; plain locks of other libraries, whose value can be
    /// any text. A fair lock without waiters, and a spin lock, look like a lock.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    ///
    /// # Examples
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let client = turnlock::Client::connect("memory://").await?;
    /// let guard = client.lock("orders:42").await?;
    /// let found = client.find("orders:*", 100).await?;
    /// assert_eq!(found.items[0].name, "orders:42");
    /// assert_eq!(&found.items[0].holders[0].owner, guard.owner_id());
    /// # Ok::<(), turnlock::Error>(()) }).unwrap();
    /// ```
    pub async fn find(&self, pattern: &str, at_most: usize) -> Result<Found, Error> {
        let engine = &self.engine;
        engine.on_runtime(Found::search(engine, pattern, at_most)).await
    }

    /// Inspects the key of this exact name, whatever its kind.
    ///
    /// `None` if it is not a lock, a semaphore or a latch. A free lock is returned if it left data on the store: the last
    /// token of a fenced lock, or the queue of a fair one.
    ///
    /// On Redis, a number is returned as a [semaphore](Kind::Semaphore), although it can be a latch or something else,
    /// and a short text with an expiry as a plain lock.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    ///
    /// # Examples
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// use turnlock::{Client, Kind};
    ///
    /// let client = Client::connect("memory://").await?;
    /// let guard = client.fair_lock("orders").await?;
    /// let seen = client.inspect("orders").await?.expect("held");
    /// assert_eq!(seen.kind, Kind::Fair);
    /// assert!(client.inspect("order?").await?.is_none());
    /// # drop(guard);
    /// # Ok::<(), turnlock::Error>(()) }).unwrap();
    /// ```
    pub async fn inspect(&self, name: &str) -> Result<Option<Inspection>, Error> {
        Named::new(&self.engine, core::Kind::Plain, name).inspect_any_kind().await
    }

    /// Returns the identities of the clients of these owners, in the same order.
    ///
    /// `None` for a client that has written no record, for a permit that was not [announced](crate::Permits::announce), and if
    /// this user may not read the records. One request for all; in a cluster, one for each client or permit.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn identities(&self, owners: &[OwnerId]) -> Result<Vec<Option<Identity>>, Error> {
        let record_of = |owner: &OwnerId| Identity::record_key(owner).map(|(record, _)| record);
        let records: BTreeSet<_> = owners.iter().filter_map(record_of).collect();
        let records = Vec::from_iter(records);
        let engine = &self.engine;
        let known = engine.on_runtime(engine.client_records(&records)).await?;
        let known: BTreeMap<_, _> = records.into_iter().zip(known).collect();
        Ok(owners.iter().map(|owner| known.get(&record_of(owner)?).cloned()?).collect())
    }

    /// Returns who waits on this store, as far as its clients have announced it.
    ///
    /// A turnlock client announces its waits of at least a second: see
    /// [`Builder::announce_waits`](crate::Builder::announce_waits). Clients of other libraries do not. Names of other key
    /// prefixes are included. One request. [`Error::Denied`] if this user may not read it.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    ///
    /// # Examples
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let client = turnlock::Client::connect("memory://").await?;
    /// for waiter in client.waits().await?.waiters {
    ///     println!("{} waits for {}", waiter.process(), waiter.name);
    /// }
    /// # Ok::<(), turnlock::Error>(()) }).unwrap();
    /// ```
    pub async fn waits(&self) -> Result<Waits, Error> {
        let engine = &self.engine;
        Ok(engine.on_runtime(engine.situation()).await?.into_waits(&engine.reader()))
    }

    /// Returns the tasks that wait for each other in a cycle, the certain deadlocks first.
    ///
    /// Found in what clients have [announced](Client::waits), usually within two seconds of the begin, later where hundreds of
    /// clients hold and wait. Each client in a deadlock logs a warning. See [`Deadlock::is_certain`] for what is proven.
    /// One request, and one for each lock of a certain deadlock. If [`Waits::is_complete`] is `false`, not all deadlocks are found.
    /// [`Error::Denied`] if this user may not read them.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn deadlocks(&self) -> Result<Vec<Deadlock>, Error> {
        Ok(self.search_deadlocks().await?.0)
    }

    /// As [`deadlocks`](Self::deadlocks), with [`Waits::is_complete`]. For the program, which shows both.
    #[doc(hidden)]
    pub async fn search_deadlocks(&self) -> Result<(Vec<Deadlock>, bool), Error> {
        self.engine.on_runtime(self.engine.search_deadlocks()).await
    }

    /// Releases a lock by force: all of it, or only the hold of `owner`.
    ///
    /// Returns `true` if it was held. See [`Lock::force_unlock`] and [`Lock::force_unlock_of`].
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for a semaphore or a latch, which have no owners, and for a permit semaphore without an
    /// owner, which is the id of one permit.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: a cancelled call may have released the lock or not.
    ///
    /// # Examples
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let client = turnlock::Client::connect("memory://").await?;
    /// let guard = client.lock("orders").await?;
    /// let seen = client.inspect("orders").await?.expect("held");
    /// let holder = &seen.holders[0].owner;
    /// assert!(client.force_unlock(seen.kind, &seen.name, Some(holder)).await?);
    /// assert!(!client.force_unlock(seen.kind, &seen.name, Some(holder)).await?);
    /// guard.lost().await;
    /// # Ok::<(), turnlock::Error>(()) }).unwrap();
    /// ```
    pub async fn force_unlock(&self, kind: Kind, name: &str, owner: Option<&OwnerId>) -> Result<bool, Error> {
        let lock = self.lock_of(kind.to_core(), name);
        match owner {
            Some(owner) => lock.force_unlock_of(owner).await,
            None => lock.force_unlock().await,
        }
    }

    /// Returns a new owner, for [`Lock::with_owner`].
    pub fn owner(&self) -> Owner {
        Owner::new(&self.engine, self.owners.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Returns the id of this client: the first part of its owner ids on the store.
    pub fn id(&self) -> ClientId {
        self.engine.client
    }

    /// Checks the store for what endangers locks, and returns a report.
    ///
    /// It checks persistence, replication, eviction, clocks, latency, missing permissions (with the
    /// [rule](crate::acl::AclRule) to grant them) and pub/sub. It takes a second or two.
    ///
    /// No setting is changed. Probes use names of their own behind the key prefix, and remove them; what the user may not
    /// remove expires. Only primaries are checked, not replicas or sentinels. What the user may not read is reported as
    /// [unknown](crate::doctor::Level::Unknown).
    ///
    /// # Cancel safety
    ///
    /// A cancelled call can leave a probe lock until its lease of some seconds ends, or a probe semaphore or latch.
    ///
    /// # Examples
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let client = turnlock::Client::connect("memory://").await?; // or redis://127.0.0.1
    /// let report = client.doctor().await;
    /// println!("{report}");
    /// assert_eq!(report.problems().count(), 0);
    /// # Ok::<(), turnlock::Error>(()) }).unwrap();
    /// ```
    pub async fn doctor(&self) -> Report {
        self.examine(None).await
    }

    /// Checks the store as [`doctor`](Client::doctor), with probes whose names begin with `prefix`.
    ///
    /// For a user who may lock some names only.
    pub async fn doctor_with_prefix(&self, prefix: &str) -> Report {
        self.examine(Some(prefix)).await
    }

    /// Describes the servers of the store: version, role, replicas, latency.
    ///
    /// Makes also the checks of [`doctor`](Client::doctor) that only read; the worst finding comes first. Writes nothing.
    /// Takes some tens of requests. A server that does not reply is part of the result.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    ///
    /// # Examples
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let client = turnlock::Client::connect("memory://").await?; // or redis://127.0.0.1
    /// for server in client.overview().await?.servers {
    ///     println!("{}: {:?}, {:?}", server.address, server.version, server.latency);
    /// }
    /// # Ok::<(), turnlock::Error>(()) }).unwrap();
    /// ```
    pub async fn overview(&self) -> Result<Overview, Error> {
        let engine = &self.engine;
        engine.on_runtime(doctor::overview(engine)).await
    }

    /// Makes the shortest request to the store: one round trip without effect.
    ///
    /// On Redis a `PING`, on the connection of the locks; in a cluster, to a random primary. On a file, a transaction that
    /// writes nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] on a store in memory, which has no round trip.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn ping(&self) -> Result<(), Error> {
        let engine = &self.engine;
        engine.on_runtime(doctor::ping(engine)).await
    }

    async fn examine(&self, names: Option<&str>) -> Report {
        let engine = &self.engine;
        engine.on_runtime(doctor::examine(engine, names)).await
    }

    /// Stops acquiring, and waits until all guards are dropped and all releases are confirmed.
    ///
    /// Waits at most `limit`. Waiters fail with [`Error::ShuttingDown`]. No lock is taken from a guard; locks that are
    /// still held at the end are no longer renewed, and their guards are [lost](crate::Guard::lost) when the lease ends.
    ///
    /// # Cancel safety
    ///
    /// A cancelled call leaves the client closed for new locks; held locks are still renewed.
    pub async fn shutdown(&self, limit: Duration) -> ShutdownReport {
        let (held, unfinished) = self.engine.on_runtime(self.engine.shutdown(limit)).await;
        ShutdownReport { held, unfinished }
    }
}
