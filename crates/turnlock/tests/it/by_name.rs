//! Servers that refuse for a while, and say why: LOADING, BUSY, NOREPLICAS, READONLY, MASTERDOWN, CLUSTERDOWN, TRYAGAIN, MOVED,
//! ASK. Who waits bears it, and has the lock when it is over; who has waited long enough is told in the server's own word.

use std::error::Error as _;
use std::slice;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use turnlock::{Client, Error, Guard, Lock};
use turnlock_testkit::{ClusterSet, RedisServer, eventually, within};

use crate::rig::{NO_POLL, PROMPT, ms};
use crate::store::Store;
use crate::{CaseFuture, trial_of};

/// A case that starts its own servers.
type OwnCase = (&'static str, fn() -> CaseFuture);

/// Names an `async fn()` as a case.
macro_rules! cases {
    ($($case:ident),* $(,)?) => { &[$((stringify!($case), || Box::pin($case()))),*] };
}

const CASES: &[OwnCase] = cases![
    a_server_that_loads_its_data,
    a_server_that_is_busy_with_a_script,
    a_master_that_misses_its_replicas,
    a_master_that_was_demoted,
    a_replica_that_has_lost_its_master,
    a_slot_that_nobody_serves,
    slots_on_the_move,
];

pub(crate) fn trials() -> impl Iterator<Item = Trial> {
    let trial = |(name, case): &OwnCase| trial_of(&format!("by_name::{name}"), Store::Redis.missing(), *case);
    CASES.iter().map(trial)
}

/// A lease that is longer than any refusal, on a slow machine too.
const LEASE: Duration = Duration::from_secs(9);

/// How long a refusal lasts: a third of the lease, so that a renewal falls into it.
const SPELL: Duration = Duration::from_secs(3);

/// How often some callers are refused before their pauses are long, and how often in a second from then on.
const AT_FIRST: u64 = 60;
const A_SECOND: u64 = 20;

/// Callers of a server that begins to refuse, and what they hold by then.
struct Callers {
    word: &'static str,
    lock: fn(&Client, &str) -> Lock,
    patient: Client,
    /// Bears nothing for long.
    hasty: Client,
    held: Guard,
    to_unlock: Guard,
    /// One of the hasty client's.
    to_give_up: Guard,
}

impl Callers {
    /// All names have the same slot.
    async fn come(url: &str, word: &'static str, lock: fn(&Client, &str) -> Lock) -> Self {
        let builder = || Client::builder().poll(NO_POLL).watchdog(LEASE);
        let patient = builder().connect(url).await.expect("a server");
        let hasty = builder().retry_for(ms(300)).connect(url).await.expect("a server");
        let take = async |client, name: &str| lock(client, &name_of(word, name)).lock().await.expect("free");
        let (held, to_unlock) = (take(&patient, "held").await, take(&patient, "to unlock").await);
        let to_give_up = take(&hasty, "to give up").await;
        Self { word, lock, patient, hasty, held, to_unlock, to_give_up }
    }

    /// To be called when the servers refuse; `end` ends that. They may have refused so often in a second.
    async fn come_through(self, servers: &[RedisServer], a_second: u64, end: impl Future<Output = ()>) {
        let Self { word, lock, patient, hasty, held, to_unlock, to_give_up } = self;
        let lock_of = |client, name: &str| lock(client, &name_of(word, name));
        let begun = Instant::now();
        let (one, other, third) = (
            lock_of(&patient, "told at once"),
            lock_of(&patient, "told after the wait"),
            lock_of(&hasty, "told after a time"),
        );
        let told = async {
            tokio::join!(one.try_lock(), other.try_lock_for(ms(300)), third.lock(), to_give_up.unlock())
        };
        let (one, other, third, given_up) = within(ms(20_000), "they are told", Box::pin(told)).await;
        for outcome in [one.map(drop), other.map(drop), third.map(drop)] {
            let error = outcome.expect_err(word);
            let is_named = error.to_string().contains(word);
            assert!(matches!(&error, Error::Unavailable { .. }) && is_named, "{error}");
        }
        let error = given_up.expect_err(word);
        let cause = error.source().expect("a cause").to_string();
        assert!(matches!(&error, Error::InDoubt { .. }) && cause.contains(word), "{cause}");

        let (endless, limited) = (lock_of(&patient, "endless"), lock_of(&patient, "limited"));
        let waiting = [
            tokio::spawn(async move { endless.lock().await?.unlock().await }),
            tokio::spawn(async move {
                limited.try_lock_for(ms(20_000)).await?.expect("nobody else wants it").unlock().await
            }),
            tokio::spawn(to_unlock.unlock()),
        ];
        tokio::time::sleep(SPELL).await;
        assert!(waiting.iter().all(|waits| !waits.is_finished()), "they do not get it yet");
        let believed_until = held.valid_until();
        end.await;
        let spell = begun.elapsed();
        for waits in waiting {
            within(PROMPT, "it is over", waits).await.expect("no panic").expect("borne");
        }
        let refused = refusals(servers, word).await;
        println!("{word} for {spell:?}, said {refused} times");
        let at_most = AT_FIRST + a_second * (spell.as_secs() + 1);
        assert!((1..=at_most).contains(&refused), "{word} was said {refused} times in {spell:?}");

        let is_renewed = async || held.valid_until() > believed_until + ms(500);
        eventually("what is held is renewed again", ms(9_000), is_renewed).await;
        held.unlock().await.expect("held all the time");
        let given_up = lock_of(&patient, "to give up");
        let is_free = async || matches!(given_up.is_locked().await, Ok(false));
        eventually("the release went on in the background", PROMPT, is_free).await;
    }
}

fn name_of(word: &str, name: &str) -> String {
    format!("{{{word}}}:{name}")
}

async fn order(server: &RedisServer, words: &[&str]) {
    let outcome = server.ask::<()>(words).await;
    outcome.unwrap_or_else(|error| panic!("{}: {error}", words.join(" ")));
}

/// How often these servers have answered with the error; and, for those that are no masters and so are left at once, how
/// often they were asked for their role.
async fn refusals(servers: &[RedisServer], word: &str) -> u64 {
    let mut count = 0;
    for server in servers {
        let errors: String = server.ask(&["INFO", "errorstats"]).await.expect("counts");
        let prefix = format!("errorstat_{word}:count=");
        let said = errors.lines().find_map(|line| line.strip_prefix(&prefix));
        count += said.map_or(0, |number| number.trim().parse().expect("a number"));
        count += server.calls().await.of("role");
    }
    count
}

async fn a_server_that_loads_its_data() {
    let slowly = ["--key-load-delay", "200", "--loading-process-events-interval-bytes", "1024"];
    let mut server = RedisServer::start_with(&slowly).await;
    // More than it can load before it is told to be quick.
    let fill = "for i = 1, 40000 do redis.call('SET', 'filling:' .. i, i) end";
    order(&server, &["EVAL", fill, "0"]).await;
    let callers = Callers::come(&server.url(), "LOADING", Client::lock).await;
    order(&server, &["SAVE"]).await;
    server.restart().await;
    let end = order(&server, &["CONFIG", "SET", "key-load-delay", "0"]);
    // A new connection brings all the scripts, each of which is refused once.
    callers.come_through(slice::from_ref(&server), 3 * A_SECOND, end).await;
}

async fn a_server_that_is_busy_with_a_script() {
    let server = RedisServer::start_with(&["--busy-reply-threshold", "200"]).await;
    let callers = Callers::come(&server.url(), "BUSY", Client::lock).await;
    let mut stuck = server.client().await;
    let endless = tokio::spawn(async move {
        redis::cmd("EVAL").arg("while true do end").arg(0).query_async::<()>(&mut stuck).await
    });
    eventually("it is busy", ms(5_000), async || {
        server.ask::<()>(&["GET", "x"]).await.is_err_and(|error| error.code() == Some("BUSY"))
    })
    .await;
    let end = order(&server, &["SCRIPT", "KILL"]);
    callers.come_through(slice::from_ref(&server), A_SECOND, end).await;
    assert!(endless.await.expect("no panic").is_err());
}

async fn a_master_that_misses_its_replicas() {
    let server = RedisServer::start().await;
    let callers = Callers::come(&server.url(), "NOREPLICAS", Client::lock).await;
    let want = async |count: &str| order(&server, &["CONFIG", "SET", "min-replicas-to-write", count]).await;
    want("1").await;
    callers.come_through(slice::from_ref(&server), A_SECOND, want("0")).await;
}

async fn a_master_that_was_demoted() {
    let server = RedisServer::start().await;
    let callers = Callers::come(&server.url(), "READONLY", Client::lock).await;
    order(&server, &["REPLICAOF", "127.0.0.1", "1"]).await;
    let end = order(&server, &["REPLICAOF", "NO", "ONE"]);
    callers.come_through(slice::from_ref(&server), A_SECOND, end).await;
}

async fn a_replica_that_has_lost_its_master() {
    let server = RedisServer::start_with(&["--replica-serve-stale-data", "no"]).await;
    let callers = Callers::come(&server.url(), "MASTERDOWN", Client::lock).await;
    let before = server.calls().await.of("role");
    order(&server, &["REPLICAOF", "127.0.0.1", "1"]).await;
    let end = order(&server, &["REPLICAOF", "NO", "ONE"]);
    callers.come_through(slice::from_ref(&server), A_SECOND, end).await;
    let looks = server.calls().await.of("role") - before;
    assert!(looks > 2, "each try is on a new connection, which may lead to the new master: {looks}");
}

async fn a_slot_that_nobody_serves() {
    let set = ClusterSet::start().await;
    let callers = Callers::come(&set.url(), "CLUSTERDOWN", Client::lock).await;
    let slot = set.slot_of("{CLUSTERDOWN}").await;
    let owner = &set.nodes()[set.owner_of(slot).await];
    let slot = slot.to_string();
    order(owner, &["CLUSTER", "DELSLOTS", &slot]).await;
    let words = ["CLUSTER", "ADDSLOTS", &slot];
    callers.come_through(set.nodes(), A_SECOND, order(owner, &words)).await;
}

async fn slots_on_the_move() {
    let set = ClusterSet::start().await;
    a_slot_that_has_moved(&set).await;
    a_slot_that_is_moving(&set).await;
    a_lock_with_several_keys_in_a_slot_that_is_moving(&set).await;
}

/// MOVED costs one request more, and is nothing that a caller hears of.
async fn a_slot_that_has_moved(set: &ClusterSet) {
    let client = Client::builder().retry_for(ms(1)).connect(&set.url()).await.expect("a cluster");
    let lock = client.lock("{MOVED}:lock");
    let slot = set.slot_of("{MOVED}").await;
    let (from, to) = (set.owner_of(slot).await, (set.owner_of(slot).await + 1) % 3);
    let before = refusals(set.nodes(), "MOVED").await;
    for target in [to, from, to] {
        set.migrate(slot, target).await;
        let guard = lock.try_lock().await.expect("no error").expect("free");
        let held: bool =
            set.nodes()[target].ask(&["EXISTS", guard.name()]).await.expect("it is the one who has the slot");
        assert!(held);
        guard.unlock().await.expect("held");
    }
    // Where the client looks at the cluster by chance between two steps, there is none.
    let said = refusals(set.nodes(), "MOVED").await - before;
    assert!((1..=3).contains(&said), "MOVED was said {said} times");
}

/// ASK is followed for as long as the slot is open.
async fn a_slot_that_is_moving(set: &ClusterSet) {
    let connect = async || {
        let builder = Client::builder().watchdog(ms(3_000)).retry_for(ms(1));
        builder.connect(&set.url()).await.expect("a cluster")
    };
    let (client, other) = (connect().await, connect().await);
    let held = client.lock("{ASK}:held").lock().await.expect("free");
    let slot = set.slot_of("{ASK}").await;
    let mut migration = set.begin_migration(slot, (set.owner_of(slot).await + 1) % 3).await;
    assert_eq!(migration.move_keys().await, 1);
    let moved_at = held.valid_until();
    eventually("it is renewed where it is now", PROMPT, async || held.valid_until() > moved_at + ms(300))
        .await;
    assert!(other.lock("{ASK}:held").try_lock().await.expect("no error").is_none(), "it is held");
    let new = other.lock("{ASK}:new").try_lock().await.expect("no error").expect("free");
    assert!(client.lock("{ASK}:new").try_lock().await.expect("no error").is_none(), "it is held");
    held.unlock().await.expect("held");
    assert!(refusals(set.nodes(), "ASK").await > 0);
    migration.finish().await;
    new.unlock().await.expect("held");
}

/// The keys that a fair lock does not have just now may be on either side.
async fn a_lock_with_several_keys_in_a_slot_that_is_moving(set: &ClusterSet) {
    let callers = Callers::come(&set.url(), "TRYAGAIN", Client::fair_lock).await;
    let slot = set.slot_of("{TRYAGAIN}").await;
    let migration = set.begin_migration(slot, (set.owner_of(slot).await + 1) % 3).await;
    // It is over in a moment as a rule, so the pauses stay short.
    callers.come_through(set.nodes(), 6 * A_SECOND, migration.finish()).await;
}
