use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use turnlock_core::{ClientId, Kind, OwnerId};

use crate::builder::Builder;
use crate::doctor::{self, Report};
use crate::engine::{Engine, Errands};
use crate::error::Error;
use crate::found::Found;
use crate::identity::Identity;
use crate::inspection::Inspection;
use crate::latch::Latch;
use crate::lock::Lock;
use crate::named::Named;
use crate::owner::Owner;
use crate::permit_semaphore::PermitSemaphore;
use crate::read_write_lock::ReadWriteLock;
use crate::semaphore::Semaphore;

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
    /// | store | URL |
    /// |---|---|
    /// | a Redis or Valkey server, alone or the master of replicas | `redis://[user[:password]@]host[:port][/database]` |
    /// | the same by a Unix socket | `redis+unix:///path` or `unix:///path` |
    /// | the master that sentinels name | `redis+sentinel://[user[:password]@]host[:port],host[:port],…/master-name[/database]` |
    /// | a cluster, of which some servers are given | `redis+cluster://[user[:password]@]host[:port],host[:port],…` |
    /// | each of them by TLS | `rediss://`, `rediss+sentinel://`, `rediss+cluster://` |
    /// | a file, for the processes of this machine | `file:PATH`, as it is, or `file:///PATH` |
    /// | this user's usual file | `file:` |
    /// | a store of its own in this process | `memory://` |
    /// | one that all clients of this process share | `memory://NAME` |
    ///
    /// `valkey` may stand for `redis` in all of them. Ports are 6379, and 26379 for sentinels, when they are not given. An
    /// address of IPv6 stands in brackets. Without a user, the password (`redis://:password@host`) is that of the default
    /// user. In user, password and master's name the characters `/ ? # @ %` are written `%2F %3F %23 %40 %25`.
    ///
    /// A store in a file needs no server, and a system of the Unix family. It is made if it is not there, for this user alone, in a
    /// directory that is there; a file that is something else is left as it is. What a process held is free within a second when
    /// it dies, whatever the lease, and when the machine is started anew. The usual file is `turnlock/locks` in `XDG_STATE_HOME`,
    /// which is `~/.local/state` when it is not set.
    ///
    /// Parameters follow a `?` and are separated by `&`. [`Builder`] has the same as methods.
    ///
    /// | parameter | what it sets | when it is not given |
    /// |---|---|---|
    /// | `db` | the database, in place of the one in the path | 0 |
    /// | `user` | the user, in place of the one before the host | the default user |
    /// | `password_file`, `password_env` | a file, or an environment variable, that holds the password | |
    /// | `client_name` | the name of our connections on the server | none |
    /// | `connect_timeout`, `response_timeout` | as `500ms`, `5s`, `2m` | see [`Builder`] |
    /// | `replicas` | how many replicas must acknowledge a lock | 0 |
    /// | `ca_file` | the CAs to trust, and only these (PEM) | those of the system |
    /// | `cert_file`, `key_file` | our certificate and its key (PEM) | none |
    /// | `server_name` | the name that stands in the server's certificate | the host |
    /// | `verify` | `no` accepts any server: see [`Tls::danger_accept_any_server`](crate::Tls::danger_accept_any_server) | `yes` |
    /// | `sentinel_user`, `sentinel_password_file`, `sentinel_password_env` | how to get in to sentinels | no password |
    /// | `any_file_system` | `yes` takes a file where several machines may share it: see [`Builder::any_file_system`]; the only parameter of `file:` | `no` |
    /// | `messages` | `auto`, `sharded` or `plain`: see [`ClusterMessages`](crate::ClusterMessages) | `auto` |
    ///
    /// What cannot be, or contradicts something else, is [`Error::BadConfiguration`] with the name of the setting. No error and
    /// no log shows a password.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder().connect(url).await
    }

    /// Settings for a client.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The lock of this name. Nothing is sent; a name that cannot be is reported when the lock is used.
    pub fn lock(&self, name: &str) -> Lock {
        self.lock_of(Kind::Lock, name)
    }

    /// The fair lock of this name: granted in the order of arrival, over all processes and languages. Redisson's
    /// `getFairLock`.
    ///
    /// **Guarantee.** Who waits stands in a queue on the store. One that gives up or is cancelled leaves it at once. One
    /// whose process dies is passed over within six seconds, as long as a turnlock client stands in the queue: a waiter of
    /// turnlock gives a sign of life every second, and who is silent for four is out.
    ///
    /// **Limits.** A waiter that is silent that long and lives, because its process was paused or cut off, has lost its
    /// place; it notices within a second and queues again at the end. So does one that is thrown out by a Java neighbour:
    /// Redisson's `tryLockAsync` that gives up lowers the deadlines of all behind it by five minutes. A queue of Java's
    /// waiters alone goes by Redisson's deadlines.
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
    /// assert!(lock.try_lock().await?.is_none()); // nobody pushes in
    /// guard.unlock().await?;
    /// let _next = waiter.await.unwrap()?;
    /// # Ok::<(), turnlock::Error>(()) }).unwrap();
    /// ```
    pub fn fair_lock(&self, name: &str) -> Lock {
        self.lock_of(Kind::Fair, name)
    }

    /// The fenced lock of this name: each grant carries a [token](crate::Guard::token) that is higher than every token
    /// before it, for whoever checks it where the work is written down. Redisson's `getFencedLock`.
    ///
    /// **Guarantee.** A lock with a lease cannot hold back a process that was paused; a store that refuses a token lower
    /// than the highest it has seen can. Tokens do not fall when the lock's store expires, restarts, is flushed or fails
    /// over: a token is above the last one, not below the server's clock in microseconds, and above the highest that this
    /// client has seen.
    ///
    /// **Limits.** After a loss of data, tokens could fall if the new server's clock is behind the old one's by more than
    /// the loss took, and no client that saw the last token takes part. A Java client that gets the lock first after a loss
    /// of data starts at 1, as Redisson does. A plain lock of the same name excludes, and has no token.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let client = turnlock::Client::connect("memory://").await?;
    /// let lock = client.fenced_lock("ledger");
    /// let first = lock.lock().await?;
    /// let earlier = first.token();
    /// first.unlock().await?;
    /// assert!(lock.lock().await?.token() > earlier);
    /// # Ok::<(), turnlock::Error>(()) }).unwrap();
    /// ```
    pub fn fenced_lock(&self, name: &str) -> Lock {
        self.lock_of(Kind::Fenced, name)
    }

    /// The spin lock of this name: the same key as [`lock`](Client::lock), and it never publishes or subscribes. For
    /// servers and proxies without messages. Redisson's `getSpinLock`.
    ///
    /// **Guarantee.** It excludes, and is excluded by, a lock and a fenced lock of the same name.
    ///
    /// **Limits.** A waiter asks again and again, with pauses that grow from 2 to 128 ms, by chance; one in this client is
    /// told at once. Who waits for a lock of the same name hears of a release by a spin lock when it next looks, within a
    /// second.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let client = turnlock::Client::connect("memory://").await?;
    /// let guard = client.spin_lock("orders").lock().await?;
    /// assert!(client.lock("orders").try_lock().await?.is_none());
    /// # drop(guard);
    /// # Ok::<(), turnlock::Error>(()) }).unwrap();
    /// ```
    pub fn spin_lock(&self, name: &str) -> Lock {
        self.lock_of(Kind::Spin, name)
    }

    /// The plain lock of this name: a value that is set if there is none (`SET NX PX`), compared before it is deleted or
    /// extended. The format of redis-py, redsync and node-redlock, with which it shares locks.
    ///
    /// **Guarantee.** One holder at a time; renewed, told of its loss and cleaned up as every lock of this crate.
    ///
    /// **Limits.** No hold count, so it cannot be reentered; no messages, so a waiter asks again and again as with a
    /// [spin lock](Client::spin_lock). It shares no key format with Redisson.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let client = turnlock::Client::connect("memory://").await?;
    /// let lock = client.plain_lock("orders");
    /// let guard = lock.lock().await?;
    /// assert!(lock.try_lock().await?.is_none());
    /// assert!(guard.reenter().await.is_err());
    /// # Ok::<(), turnlock::Error>(()) }).unwrap();
    /// ```
    pub fn plain_lock(&self, name: &str) -> Lock {
        self.lock_of(Kind::Plain, name)
    }

    /// The read-write lock of this name. Redisson's `getReadWriteLock`.
    pub fn read_write_lock(&self, name: &str) -> ReadWriteLock {
        ReadWriteLock::new(self, name)
    }

    /// The semaphore of this name. Redisson's `getSemaphore`.
    ///
    /// A semaphore and a latch are numbers at their names, on Redis as in Java: give each a name of its own.
    pub fn semaphore(&self, name: &str) -> Semaphore {
        Semaphore::new(&self.engine, name)
    }

    /// The semaphore of this name whose permits have leases. Redisson's `getPermitExpirableSemaphore`.
    pub fn permit_semaphore(&self, name: &str) -> PermitSemaphore {
        PermitSemaphore::new(&self.engine, name)
    }

    /// The count-down latch of this name. Redisson's `getCountDownLatch`.
    pub fn latch(&self, name: &str) -> Latch {
        Latch::new(&self.engine, name)
    }

    pub(crate) fn lock_of(&self, kind: Kind, name: &str) -> Lock {
        Lock::new(&self.engine, kind, name)
    }

    /// What is held under names that match `pattern`, at most so many: locks of all kinds, and permit semaphores of which
    /// permits are out. In a pattern `*` stands for any characters, `?` for one, `[a-c]` and `[^a-c]` for one of these or of
    /// all others, and a backslash takes its meaning from what follows.
    ///
    /// **Guarantee.** The names are behind the client's key prefix, and sorted. Locks of Redisson are found like ours. Keys of
    /// other use, and those that belong to a lock, are not shown, and little of them is read, however large they are. What is
    /// held all the time while this looks, and is within the bounds, is found.
    ///
    /// **Limits.** On Redis every key is looked at (`SCAN`, a few hundred at a time), at most a million of them and for ten
    /// seconds: what was found by then is given, and [`Found::is_complete`] is false. It is no picture of one moment. A semaphore
    /// and a latch are bare numbers there, which look like anybody's, and are left out on every store. So is a plain lock of
    /// another library, whose value may be any text. A fair lock for which nobody stands in the queue looks like any lock, and
    /// is given as one. So does a spin lock.
    ///
    /// Cancelling: safe, nothing is changed.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let client = turnlock::Client::connect("memory://").await?;
    /// let guard = client.lock("orders:42").lock().await?;
    /// let found = client.find("orders:*", 100).await?;
    /// assert_eq!(found.things[0].name, "orders:42");
    /// assert_eq!(&found.things[0].holders[0].owner, guard.owner_id());
    /// # Ok::<(), turnlock::Error>(()) }).unwrap();
    /// ```
    pub async fn find(&self, pattern: &str, at_most: usize) -> Result<Found, Error> {
        let shared = &self.engine.shared;
        shared.on_runtime(Found::search(shared, pattern, at_most)).await
    }

    /// What stands under just this name, whatever kind it is; no character of it has a special meaning. `None` when nothing
    /// does that could be a lock.
    ///
    /// What is free is there if it left something behind: the last token of a fenced lock, the queue of a fair one. On Redis a
    /// bare number is given as a [semaphore](Kind::Semaphore), with what is [`available`](Inspection::available), although it
    /// may be a latch or something else; and a short text with an expiry as a plain lock, since other libraries choose the value
    /// freely.
    ///
    /// Cancelling: safe, nothing is changed.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// use turnlock::{Client, Kind};
    ///
    /// let client = Client::connect("memory://").await?;
    /// let guard = client.fair_lock("orders").lock().await?;
    /// let seen = client.look_up("orders").await?.expect("held");
    /// assert_eq!(seen.kind, Kind::Fair);
    /// assert!(client.look_up("order?").await?.is_none());
    /// # drop(guard);
    /// # Ok::<(), turnlock::Error>(()) }).unwrap();
    /// ```
    pub async fn look_up(&self, name: &str) -> Result<Option<Inspection>, Error> {
        Named::new(&self.engine, Kind::Plain, name).look_up().await
    }

    /// Who the clients of these owners are, in the order of the owners; `None` for one who has not said so, and for the id of a
    /// permit, which does not tell whose it is. See [`Identity`].
    ///
    /// One request for all of them; in a cluster, one for each client, at the same time. To a user who may not look, nobody has
    /// said anything.
    ///
    /// Cancelling: safe, nothing is changed.
    pub async fn identities(&self, owners: &[OwnerId]) -> Result<Vec<Option<Identity>>, Error> {
        let client_of = |owner: &OwnerId| owner.parts().map(|(client, _)| client);
        let clients: Vec<_> =
            owners.iter().filter_map(client_of).collect::<BTreeSet<_>>().into_iter().collect();
        let shared = &self.engine.shared;
        let known = shared.on_runtime(shared.introductions(&clients)).await?;
        let known: BTreeMap<_, _> = clients.into_iter().zip(known).collect();
        Ok(owners.iter().map(|owner| known.get(&client_of(owner)?).cloned()?).collect())
    }

    /// Frees what stands under a name: all of it as [`Lock::force_unlock`] does, or only what `owner` holds, if it still
    /// does, as [`Lock::force_unlock_of`]. Whether somebody held it.
    ///
    /// Of a permit semaphore the owner is the id of one permit, and must be given. A semaphore and a latch have no owners:
    /// [`Error::Unsupported`], with what to do instead.
    ///
    /// Cancelling: it may have been freed or not.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let client = turnlock::Client::connect("memory://").await?;
    /// let guard = client.lock("orders").lock().await?;
    /// let seen = client.look_up("orders").await?.expect("held");
    /// let holder = &seen.holders[0].owner;
    /// assert!(client.force_unlock(seen.kind, &seen.name, Some(holder)).await?);
    /// assert!(!client.force_unlock(seen.kind, &seen.name, Some(holder)).await?);
    /// guard.lost().await;
    /// # Ok::<(), turnlock::Error>(()) }).unwrap();
    /// ```
    pub async fn force_unlock(&self, kind: Kind, name: &str, owner: Option<&OwnerId>) -> Result<bool, Error> {
        let lock = self.lock_of(kind, name);
        match owner {
            Some(owner) => lock.force_unlock_of(owner).await,
            None => lock.force_unlock().await,
        }
    }

    /// A new owner, for [`Lock::owned_by`].
    pub fn owner(&self) -> Owner {
        Owner::new(&self.engine, self.owners.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// The identity of this client: the first part of its owners on the wire.
    pub fn id(&self) -> ClientId {
        self.engine.shared.client
    }

    /// Looks at the store, and says in plain words what endangers locks there: what a restart or a fail-over forgets, what is
    /// thrown away for want of memory, clocks that are far off, slow answers, rights that the user lacks, and messages that
    /// do not arrive. What is lacking comes with the [least rule](crate::acl::AclRule) to grant.
    ///
    /// **Guarantee.** No setting is changed. What is tried is tried on names of its own, behind the key prefix, and taken
    /// away again; where a user may take a lock and may not give it back, it ends with a short lease.
    ///
    /// **Limits.** Masters are looked at, and not their replicas or sentinels. What the user may not look at is
    /// [unknown](crate::doctor::Level::Unknown). It takes a second or two.
    ///
    /// Cancelling: what was being tried may stay for as long as its lease of some seconds; a semaphore or a latch for good.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let client = turnlock::Client::connect("memory://").await?; // or redis://127.0.0.1
    /// let report = client.doctor().await;
    /// println!("{report}");
    /// assert_eq!(report.troubles().count(), 0);
    /// # Ok::<(), turnlock::Error>(()) }).unwrap();
    /// ```
    pub async fn doctor(&self) -> Report {
        self.examine(None).await
    }

    /// As [`doctor`](Client::doctor), for a user who may lock some names only: what is tried has names that begin with this.
    pub async fn doctor_for_names(&self, beginning: &str) -> Report {
        self.examine(Some(beginning)).await
    }

    async fn examine(&self, names: Option<&str>) -> Report {
        let shared = &self.engine.shared;
        shared.on_runtime(doctor::examine(shared, names)).await
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
