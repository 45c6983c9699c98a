use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::Mutex;
use turnlock_testkit::{PendingReply, RedisServer, Redisson, Shared, eventually, within};

use super::java::Java;
use super::lock_pair::LockPair;
use crate::fixture::{Fixture, ms};
use crate::program::{Program, time_of};
use crate::store::Store;

/// The longest time from a release by Java to the grant to a waiting run.
///
/// A run polls a second after its last query, so a faster grant follows from a notification.
const PROMPT: Duration = ms(700);
/// The longest time from the end of a command to the grant to waiting Java.
///
/// Without a notification, Java waits for the end of the lease that it has read, of which at least twenty seconds are left.
const PROMPT_FOR_JAVA: Duration = ms(5_000);
/// Number of tries. Most of them must be prompt: the machine may be busy.
const ROUNDS: usize = 5;
/// Serializes the cases that measure promptness, so that they do not compete for the CPU.
static SERIAL: Mutex<()> = Mutex::const_new(());
/// Time limit of each step.
const LIMIT: Duration = Duration::from_secs(20);
/// Time for the query that a waiter sends after it has subscribed.
const QUERY_AFTER_SUBSCRIBE: Duration = ms(50);

/// The fixture of one case: the program and Java on one server, and a lock name of its own.
pub(crate) struct RedissonFixture {
    pub(super) base: Fixture,
    pub(super) pair: LockPair,
    redisson: Arc<Redisson>,
    server: Arc<RedisServer>,
}

impl RedissonFixture {
    pub(super) async fn new(version: &str, java: &Shared<Redisson>, pair: LockPair) -> Self {
        let base = Fixture::new(Store::Redis).await;
        let server = Store::Redis.server().await.expect("a store with a server");
        let redisson = java.get(|| Redisson::start(version, &base.url)).await;
        Self { base, pair, redisson, server }
    }

    /// A Java thread with the Java lock of the pair.
    pub(super) fn java(&self, thread: &str) -> Java {
        self.java_at(self.pair.java, thread)
    }

    /// A Java thread with an object of this kind.
    pub(super) fn java_at(&self, kind: &str, thread: &str) -> Java {
        Java::new(self.redisson.thread(&self.thread(thread)), kind, &self.base.name)
    }

    /// The owner id of a Java thread.
    pub(super) async fn owner(&self, thread: &str) -> String {
        self.redisson.owner(&self.thread(thread)).await
    }

    /// Cases share a Java process, and have threads of their own.
    fn thread(&self, name: &str) -> String {
        format!("{}-{name}", self.base.name)
    }

    /// Starts a run that does not wait and returns its exit code, 0 or 1.
    pub(super) async fn code_of(&self, flags: &[&str]) -> i32 {
        let (code, stderr) = self.base.run(&[&["-n"], flags].concat(), &["true"]).finish().await;
        assert!(code == 0 || code == 1, "the run exited with {code}: {stderr}");
        code
    }

    /// Starts a run that has to wait, and whose command prints `mine`.
    pub(super) async fn waiting_run(&self, flags: &[&str]) -> Program {
        let mut waiter = self.base.script(&[&["--json"], flags].concat(), "echo mine; exec cat");
        waiter.event_named("waiting").await;
        self.until_subscribed().await;
        waiter
    }

    /// Waits until a client has subscribed to a channel of the name.
    pub(super) async fn until_subscribed(&self) {
        // All channel names contain the lock name in braces, so that a longer name does not match.
        let pattern = format!("*{{{}}}*", self.base.name);
        let is_subscribed = async || {
            let found: Vec<String> =
                self.server.query(&["PUBSUB", "CHANNELS", &pattern]).await.expect("channels");
            !found.is_empty()
        };
        eventually("a client has subscribed", LIMIT, is_subscribed).await;
        // The end of that query cannot be observed. If the sleep is too short, the case proves less, but does not fail.
        tokio::time::sleep(QUERY_AFTER_SUBSCRIBE).await;
    }
}

/// The time from the release by Java to the grant to a waiting run. Returns after the start of the command.
pub(super) async fn time_to_acquire(waiter: &mut Program, release: PendingReply) -> Duration {
    within(LIMIT, "Java releases", release).await.expect("a held lock");
    let start = SystemTime::now();
    let acquired = time_of(&waiter.event_named("acquired").await);
    waiter.expect("mine").await;
    // The grant may come before the reply to the release.
    acquired.duration_since(start).unwrap_or_default()
}

/// Ends the command of `holder`. Returns the time until the call of Java returns, and its result.
pub(super) async fn java_acquires(mut holder: Program, call: PendingReply) -> (Duration, String) {
    let start = Instant::now();
    holder.close();
    let result = within(LIMIT, "Java acquires", call).await.expect("no exception");
    let took = start.elapsed();
    assert_eq!(holder.code().await, 0);
    (took, result)
}

/// Repeats `round`, and panics unless the run is prompt in most rounds.
pub(super) async fn assert_run_is_prompt<Fut: Future<Output = Duration>>(round: impl FnMut() -> Fut) {
    assert_mostly_within(PROMPT, round).await;
}

/// Repeats `round`, and panics unless Java is prompt in most rounds.
pub(super) async fn assert_java_is_prompt<Fut: Future<Output = Duration>>(round: impl FnMut() -> Fut) {
    assert_mostly_within(PROMPT_FOR_JAVA, round).await;
}

async fn assert_mostly_within<Fut: Future<Output = Duration>>(
    limit: Duration,
    mut round: impl FnMut() -> Fut,
) {
    let _serial = SERIAL.lock().await;
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        times.push(round().await);
        let prompt = times.iter().filter(|took| **took < limit).count();
        if 2 * prompt > ROUNDS {
            return;
        }
    }
    panic!("{times:?}: most are not within {limit:?}");
}
