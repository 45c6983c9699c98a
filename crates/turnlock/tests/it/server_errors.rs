//! Temporary server errors: LOADING, BUSY, NOREPLICAS, READONLY, MASTERDOWN, CLUSTERDOWN, TRYAGAIN, MOVED,
//! ASK.
//!
//! A waiter retries them and acquires the lock when they end. A caller whose time is over gets an error that
//! names the server's error.

use std::error::Error as _;
use std::slice;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use turnlock::{Client, Error, Guard, Lock};
use turnlock_testkit::{ClusterSet, RedisServer, eventually, within};

use crate::fixture::{NO_POLL, PROMPT, ms};
use crate::store_kind::StoreKind;
use crate::{CaseFuture, trial_of};

/// A case that starts its own servers.
type OwnCase = (&'static str, fn() -> CaseFuture);

/// Makes a list of cases from `async fn()` functions.
macro_rules! cases {
    ($($case:ident),* $(,)?) => { &[$((stringify!($case), || Box::pin($case()))),*] };
}

const CASES: &[OwnCase] = cases![
    a_loading_server_is_retried,
    a_server_busy_with_a_script_is_retried,
    a_master_without_enough_replicas_is_retried,
    a_demoted_master_is_retried,
    a_replica_without_its_master_is_retried,
    an_unserved_slot_is_retried,
    migrating_slots_are_followed,
];

pub(crate) fn trials() -> impl Iterator<Item = Trial> {
    let trial = |(name, case): &OwnCase| {
        trial_of(&format!("server_errors::{name}"), StoreKind::Redis.missing(), *case)
    };
    CASES.iter().map(trial)
}

/// A lease longer than any outage here, also on a slow machine.
const LEASE: Duration = Duration::from_secs(9);

/// How long the server refuses requests: a third of the lease, so that a renewal fails.
const OUTAGE: Duration = Duration::from_secs(3);

/// The most refusals before the pauses between retries are long.
const INITIAL_REFUSALS: u64 = 60;

/// The most refusals per second after that.
const REFUSALS_PER_SECOND: u64 = 20;

/// Callers of a server before it refuses requests, and the locks that they hold.
struct Callers {
    /// The code of the server's error.
    code: &'static str,
    lock: fn(&Client, &str) -> Lock,
    /// Retries for the default time.
    long_retry: Client,
    /// Retries for 300 ms.
    short_retry: Client,
    held: Guard,
    to_unlock: Guard,
    /// A guard of the client with short retries.
    to_time_out: Guard,
}

impl Callers {
    /// Connects the clients and acquires their locks. All names have the same slot.
    async fn connect(url: &str, code: &'static str, lock: fn(&Client, &str) -> Lock) -> Self {
        let builder = || Client::builder().poll_interval(NO_POLL).watchdog_timeout(LEASE);
        let long_retry = builder().connect(url).await.expect("a server");
        let short_retry = builder().retry_for(ms(300)).connect(url).await.expect("a server");
        let take = async |client, name: &str| lock(client, &name_of(code, name)).lock().await.expect("free");
        let (held, to_unlock) = (take(&long_retry, "held").await, take(&long_retry, "to unlock").await);
        let to_time_out = take(&short_retry, "to time out").await;
        Self { code, lock, long_retry, short_retry, held, to_unlock, to_time_out }
    }

    /// Checks all callers while the servers refuse requests, until `end` ends that.
    ///
    /// `per_second` limits the refusals per second.
    async fn check(self, servers: &[RedisServer], per_second: u64, end: impl Future<Output = ()>) {
        let Self { code, lock, long_retry, short_retry, held, to_unlock, to_time_out } = self;
        let lock_of = |client, name: &str| lock(client, &name_of(code, name));
        let begun = Instant::now();
        let (one, other, third) = (
            lock_of(&long_retry, "refused at once"),
            lock_of(&long_retry, "refused after the wait"),
            lock_of(&short_retry, "refused after the retries"),
        );
        let refused = async {
            tokio::join!(one.try_lock(), other.try_lock_for(ms(300)), third.lock(), to_time_out.unlock())
        };
        let (one, other, third, timed_out) =
            within(ms(20_000), "the errors are returned", Box::pin(refused)).await;
        for outcome in [one.map(drop), other.map(drop), third.map(drop)] {
            let error = outcome.expect_err(code);
            let is_named = turnlock_testkit::error_chain(&error).contains(code);
            assert!(matches!(&error, Error::Unavailable { .. }) && is_named, "{error}");
        }
        let error = timed_out.expect_err(code);
        let cause = error.source().expect("a cause").to_string();
        assert!(matches!(&error, Error::InDoubt { .. }) && cause.contains(code), "{cause}");

        let (endless, limited) = (lock_of(&long_retry, "endless"), lock_of(&long_retry, "limited"));
        let waiting = [
            tokio::spawn(async move { endless.lock().await?.unlock().await }),
            tokio::spawn(async move {
                limited.try_lock_for(ms(20_000)).await?.acquired().expect("no other caller").unlock().await
            }),
            tokio::spawn(to_unlock.unlock()),
        ];
        tokio::time::sleep(OUTAGE).await;
        assert!(waiting.iter().all(|task| !task.is_finished()), "the server still refuses");
        let valid_until = held.valid_until();
        end.await;
        let outage = begun.elapsed();
        for task in waiting {
            within(PROMPT, "the outage is over", task).await.expect("no panic").expect("retried");
        }
        let refused = refusals(servers, code).await;
        println!("{code} for {outage:?}: {refused} refusals");
        let at_most = INITIAL_REFUSALS + per_second * (outage.as_secs() + 1);
        assert!((1..=at_most).contains(&refused), "{code}: {refused} refusals in {outage:?}");

        let is_renewed = async || held.valid_until() > valid_until + ms(500);
        eventually("the held lock is renewed again", ms(9_000), is_renewed).await;
        held.unlock().await.expect("held all the time");
        let timed_out = lock_of(&long_retry, "to time out");
        let is_free = async || matches!(timed_out.is_locked().await, Ok(false));
        eventually("the release completes in the background", PROMPT, is_free).await;
    }
}

fn name_of(code: &str, name: &str) -> String {
    format!("{{{code}}}:{name}")
}

async fn command(server: &RedisServer, words: &[&str]) {
    let outcome = server.query::<()>(words).await;
    outcome.unwrap_or_else(|error| panic!("{}: {error}", words.join(" ")));
}

/// Returns how often these servers have replied with the error or to ROLE.
///
/// A client leaves a server that is not a master after ROLE, so that reply counts as a refusal.
async fn refusals(servers: &[RedisServer], code: &str) -> u64 {
    let mut count = 0;
    for server in servers {
        let errors: String = server.query(&["INFO", "errorstats"]).await.expect("counts");
        let prefix = format!("errorstat_{code}:count=");
        let counted = errors.lines().find_map(|line| line.strip_prefix(&prefix));
        count += counted.map_or(0, |number| number.trim().parse().expect("a number"));
        count += server.calls().await.of("role");
    }
    count
}

async fn a_loading_server_is_retried() {
    let slowly = ["--key-load-delay", "200", "--loading-process-events-interval-bytes", "1024"];
    let mut server = RedisServer::start_with(&slowly).await;
    // More than it can load before the delay is removed.
    let fill = "for i = 1, 40000 do redis.call('SET', 'filling:' .. i, i) end";
    command(&server, &["EVAL", fill, "0"]).await;
    let callers = Callers::connect(&server.url(), "LOADING", Client::lock).await;
    command(&server, &["SAVE"]).await;
    server.restart().await;
    let end = command(&server, &["CONFIG", "SET", "key-load-delay", "0"]);
    // A new connection loads all scripts, and each of these is refused once.
    callers.check(slice::from_ref(&server), 3 * REFUSALS_PER_SECOND, end).await;
}

async fn a_server_busy_with_a_script_is_retried() {
    let server = RedisServer::start_with(&["--busy-reply-threshold", "200"]).await;
    let callers = Callers::connect(&server.url(), "BUSY", Client::lock).await;
    let mut stuck = server.client().await;
    let endless = tokio::spawn(async move {
        redis::cmd("EVAL").arg("while true do end").arg(0).query_async::<()>(&mut stuck).await
    });
    eventually("it is busy", ms(5_000), async || {
        server.query::<()>(&["GET", "x"]).await.is_err_and(|error| error.code() == Some("BUSY"))
    })
    .await;
    let end = command(&server, &["SCRIPT", "KILL"]);
    callers.check(slice::from_ref(&server), REFUSALS_PER_SECOND, end).await;
    assert!(endless.await.expect("no panic").is_err());
}

async fn a_master_without_enough_replicas_is_retried() {
    let server = RedisServer::start().await;
    let callers = Callers::connect(&server.url(), "NOREPLICAS", Client::lock).await;
    let want = async |count: &str| command(&server, &["CONFIG", "SET", "min-replicas-to-write", count]).await;
    want("1").await;
    callers.check(slice::from_ref(&server), REFUSALS_PER_SECOND, want("0")).await;
}

async fn a_demoted_master_is_retried() {
    let server = RedisServer::start().await;
    let callers = Callers::connect(&server.url(), "READONLY", Client::lock).await;
    command(&server, &["REPLICAOF", "127.0.0.1", "1"]).await;
    let end = command(&server, &["REPLICAOF", "NO", "ONE"]);
    callers.check(slice::from_ref(&server), REFUSALS_PER_SECOND, end).await;
}

async fn a_replica_without_its_master_is_retried() {
    let server = RedisServer::start_with(&["--replica-serve-stale-data", "no"]).await;
    let callers = Callers::connect(&server.url(), "MASTERDOWN", Client::lock).await;
    let before = server.calls().await.of("role");
    command(&server, &["REPLICAOF", "127.0.0.1", "1"]).await;
    let end = command(&server, &["REPLICAOF", "NO", "ONE"]);
    callers.check(slice::from_ref(&server), REFUSALS_PER_SECOND, end).await;
    let checks = server.calls().await.of("role") - before;
    assert!(checks > 2, "each retry uses a new connection, which may lead to the new master: {checks}");
}

async fn an_unserved_slot_is_retried() {
    let set = ClusterSet::start().await;
    let callers = Callers::connect(&set.url(), "CLUSTERDOWN", Client::lock).await;
    let slot = set.slot_of("{CLUSTERDOWN}").await;
    let owner = &set.nodes()[set.owner_of(slot).await];
    let slot = slot.to_string();
    command(owner, &["CLUSTER", "DELSLOTS", &slot]).await;
    let words = ["CLUSTER", "ADDSLOTS", &slot];
    callers.check(set.nodes(), REFUSALS_PER_SECOND, command(owner, &words)).await;
}

async fn migrating_slots_are_followed() {
    let set = ClusterSet::start().await;
    moved_is_followed(&set).await;
    ask_is_followed(&set).await;
    tryagain_is_retried(&set).await;
}

/// MOVED costs one more request, and the caller gets no error.
async fn moved_is_followed(set: &ClusterSet) {
    let client = Client::builder().retry_for(ms(1)).connect(&set.url()).await.expect("a cluster");
    let lock = client.lock("{MOVED}:lock");
    let slot = set.slot_of("{MOVED}").await;
    let (from, to) = (set.owner_of(slot).await, (set.owner_of(slot).await + 1) % 3);
    let before = refusals(set.nodes(), "MOVED").await;
    for target in [to, from, to] {
        set.migrate(slot, target).await;
        let guard = lock.try_lock().await.expect("no error").acquired().expect("free");
        let held: bool =
            set.nodes()[target].query(&["EXISTS", guard.name()]).await.expect("this node has the slot");
        assert!(held);
        guard.unlock().await.expect("held");
    }
    // No MOVED comes when the client refreshes its slot map between two steps.
    let redirects = refusals(set.nodes(), "MOVED").await - before;
    assert!((1..=3).contains(&redirects), "{redirects} MOVED replies");
}

/// ASK is followed while the slot migrates.
async fn ask_is_followed(set: &ClusterSet) {
    let connect = async || {
        let builder = Client::builder().watchdog_timeout(ms(3_000)).retry_for(ms(1));
        builder.connect(&set.url()).await.expect("a cluster")
    };
    let (client, other) = (connect().await, connect().await);
    let held = client.lock("{ASK}:held").lock().await.expect("free");
    let slot = set.slot_of("{ASK}").await;
    let mut migration = set.begin_migration(slot, (set.owner_of(slot).await + 1) % 3).await;
    assert_eq!(migration.move_keys().await, 1);
    let moved_at = held.valid_until();
    eventually("it is renewed on the new node", PROMPT, async || held.valid_until() > moved_at + ms(300))
        .await;
    assert!(other.lock("{ASK}:held").try_lock().await.expect("no error").is_busy(), "it is held");
    let new = other.lock("{ASK}:new").try_lock().await.expect("no error").acquired().expect("free");
    assert!(client.lock("{ASK}:new").try_lock().await.expect("no error").is_busy(), "it is held");
    held.unlock().await.expect("held");
    assert!(refusals(set.nodes(), "ASK").await > 0);
    migration.finish().await;
    new.unlock().await.expect("held");
}

/// The keys of a fair lock that do not exist may be on either node, so the server replies TRYAGAIN.
async fn tryagain_is_retried(set: &ClusterSet) {
    let callers = Callers::connect(&set.url(), "TRYAGAIN", Client::fair_lock).await;
    let slot = set.slot_of("{TRYAGAIN}").await;
    let migration = set.begin_migration(slot, (set.owner_of(slot).await + 1) % 3).await;
    // Such a migration usually ends in a moment, so the pauses stay short.
    callers.check(set.nodes(), 6 * REFUSALS_PER_SECOND, migration.finish()).await;
}
