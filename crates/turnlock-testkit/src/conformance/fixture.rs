use std::any::Any;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::JoinHandle;
use turnlock::{Builder, Client, Error, Guard, Lock, blocking};

use super::kind::{BlockingKindClient, Kind, KindClient};
use crate::eventually;

/// The store of one case, its own or shared with other cases.
///
/// Two methods are required: to make clients. The others serve cases that a store can [do without](super::Feature), or
/// describe how stores may differ.
pub trait StoreUnderTest: Any + Send + Sync {
    /// Makes a client with the options of `builder`.
    fn client(&self, builder: Builder) -> BoxFuture<'_, Result<Client, Error>>;

    /// Makes a blocking client with the options of `builder`.
    fn blocking_client(&self, builder: Builder) -> Result<blocking::Client, Error>;

    /// Deletes all locks whose names contain `text`, or all locks of the case, without a message.
    ///
    /// Needed for [`Feature::DataLoss`](super::Feature::DataLoss).
    fn lose_data(&self, text: &str) -> BoxFuture<'_, ()> {
        panic!("the store does not declare that it lacks `Feature::DataLoss`: {text}")
    }

    /// Makes a client whose releases send no message.
    ///
    /// Needed for [`Feature::LostMessages`](super::Feature::LostMessages). No message of other clients of the case is
    /// needed from then on.
    fn mute_client(&self, builder: Builder) -> BoxFuture<'_, Result<Client, Error>> {
        panic!("the store does not declare that it lacks `Feature::LostMessages`: {builder:?}")
    }

    /// Ends a hold without a message to waiters. By default, it [deletes](StoreUnderTest::lose_data) it.
    fn release_without_message(&self, guard: Guard) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.lose_data(guard.name()).await;
            assert!(guard.unlock().await.is_err());
        })
    }

    /// Returns how many of `all` rounds of a race to run. A tenth by default; more for a quick store.
    fn rounds(&self, all: usize) -> usize {
        all / 10
    }

    /// Returns `true` if the first poll of a step completes it.
    fn replies_on_first_poll(&self) -> bool {
        false
    }

    /// Returns `true` if the store cannot tell a semaphore from a latch by its data.
    fn has_untyped_counters(&self) -> bool {
        false
    }

    /// Returns `true` if names with a single brace are refused, as in a Redis cluster.
    fn refuses_single_braces(&self) -> bool {
        false
    }
}

/// A poll interval longer than any test waits, so that only a message can wake a waiter in time.
pub const NO_POLL: Duration = Duration::from_secs(60);

/// Time limit of a message or a step on a busy machine.
///
/// Nothing else can have the same effect in this time: the poll comes after [`NO_POLL`], and a lease of 30 s
/// is renewed after 7.5 s at the earliest.
pub const PROMPT: Duration = Duration::from_secs(5);

/// Time limit of a waiter that depends on the default poll of one second, on a busy machine.
pub const ONE_POLL: Duration = Duration::from_secs(3);

/// The store of one case, clients of it, and names that no other case uses.
pub struct Fixture {
    /// The kind of primitive that the case runs for.
    pub kind: Kind,
    store: Box<dyn StoreUnderTest>,
    /// The prefix of all names of this case.
    prefix: String,
    next_name: AtomicU64,
    /// Held while this case keeps a processor busy.
    busy_permit: OnceLock<SemaphorePermit<'static>>,
}

impl Fixture {
    /// Matches the names of every fixture.
    pub const NAME_PATTERN: &str = "case*";

    /// Creates the fixture of a new case on this store.
    pub fn new(store: Box<dyn StoreUnderTest>, kind: Kind) -> Self {
        static CASES: AtomicU64 = AtomicU64::new(0);
        let prefix = format!("case{}:", CASES.fetch_add(1, Ordering::Relaxed));
        Self { kind, store, prefix, next_name: AtomicU64::new(0), busy_permit: OnceLock::new() }
    }

    /// Returns the store of the case.
    pub fn store(&self) -> &dyn StoreUnderTest {
        &*self.store
    }

    /// Returns the store of the case.
    pub fn store_mut(&mut self) -> &mut dyn StoreUnderTest {
        &mut *self.store
    }

    /// Connects a client whose waiters are woken only by messages.
    pub async fn client(&self) -> KindClient {
        self.client_with(Client::builder().poll_interval(NO_POLL)).await
    }

    /// Connects a client with these options.
    pub async fn client_with(&self, builder: Builder) -> KindClient {
        KindClient::new(self.store.client(builder).await.expect("the store is reachable"), self.kind)
    }

    /// Connects a blocking client whose waiters are woken only by messages.
    pub fn blocking_client(&self) -> BlockingKindClient {
        let client = self.store.blocking_client(Client::builder().poll_interval(NO_POLL));
        BlockingKindClient::new(client.expect("the store is reachable"), self.kind)
    }

    /// Returns a new name that no other case uses.
    pub fn name(&self) -> String {
        format!("{}{}", self.prefix, self.next_name.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the name with this suffix, the same each time. No other case uses it.
    pub fn named(&self, suffix: &str) -> String {
        format!("{}{suffix}", self.prefix)
    }

    /// Returns how many rounds of a race to run on this store, of `all` on the quickest.
    ///
    /// Such a case keeps a processor busy. At most two of them run at a time: this waits for a permit, which
    /// the fixture holds until it is dropped.
    ///
    /// # Panics
    ///
    /// When a case calls it twice.
    pub async fn rounds(&self, all: usize) -> usize {
        static BUSY: Semaphore = Semaphore::const_new(2);
        let permit = BUSY.acquire().await.expect("never closed");
        assert!(self.busy_permit.set(permit).is_ok(), "a case calls `rounds` once");
        self.store.rounds(all)
    }

    /// Deletes all data of this case, without a message.
    pub async fn lose_data(&self) {
        self.store.lose_data(&self.prefix).await;
    }

    /// Ends a hold without a message to waiters.
    pub async fn release_without_message(&self, guard: Guard) {
        self.store.release_without_message(guard).await;
    }

    /// Connects a client whose releases send no message.
    pub async fn mute_client(&self) -> KindClient {
        let client = self.store.mute_client(Client::builder().poll_interval(NO_POLL)).await;
        KindClient::new(client.expect("the store is reachable"), self.kind)
    }
}

impl std::fmt::Debug for Fixture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fixture")
            .field("kind", &self.kind)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

/// A duration in milliseconds.
pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Waits until `count` tasks of the lock's client wait for it.
pub async fn until_waiting(lock: &Lock, count: usize) {
    let waiting = async || lock.inspect().await.is_ok_and(|seen| seen.waiting_here == count);
    eventually("the tasks wait", ms(20_000), waiting).await;
}

/// Returns the output of a task, and resumes its panic.
///
/// The panic payload stays the same, so that a [`TimedOut`](crate::TimedOut) is still recognized.
pub async fn joined<T>(task: JoinHandle<T>) -> T {
    task.await.unwrap_or_else(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(error) => panic!("{error}"),
    })
}
