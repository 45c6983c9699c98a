//! Locks that replicas must acknowledge: a master with replicas that are slow, frozen, disconnected or promoted.

mod batches;
mod grants;
mod promotion;
mod renewals;
mod replay;
mod shortfalls;

use libtest_mimic::Trial;
use turnlock::{Builder, Client, Error};
use turnlock_testkit::{RedisServer, eventually};

use crate::fixture::{Fixture, Kind, NO_POLL, ms};
use crate::resource::Resource;
use crate::store_kind::StoreKind;
use crate::trial_of;

/// All kinds that support replicas.
const KINDS: [Kind; 9] = [
    Kind::Lock,
    Kind::Fair,
    Kind::Fenced,
    Kind::Spin,
    Kind::Plain,
    Kind::Write,
    Kind::Read,
    Kind::Semaphore,
    Kind::Permits,
];

/// All cases, with `replicas` in their titles.
pub(crate) fn trials() -> impl Iterator<Item = Trial> {
    let kind_cases = KINDS.iter().flat_map(|kind| {
        let lease_cases = [promotion::LEASE_CASES, replay::LEASE_CASES].concat();
        let lease_cases = lease_cases.into_iter().filter(|_| *kind != Kind::Semaphore);
        shortfalls::KIND_CASES.iter().copied().chain(lease_cases).map(|case| (*kind, case))
    });
    let all =
        [batches::CASES, grants::CASES, promotion::CASES, renewals::CASES, replay::CASES, shortfalls::CASES];
    let lock_cases = all.into_iter().flatten().map(|case| (Kind::Lock, *case));
    let on_redis = kind_cases.chain(lock_cases).map(|(kind, case)| (StoreKind::Redis, kind, case));
    let on_memory = grants::MEMORY_CASES.iter().map(|case| (StoreKind::Memory, Kind::Lock, *case));
    on_redis.chain(on_memory).map(|(store, kind, (name, case))| {
        let title = format!("{}::replicas::{}::{name}", store.name(), kind.name());
        trial_of(&title, store.missing(), move || async move { case(Fixture::new(store, kind).await).await })
    })
}

/// Settings with a short response time-out: a shortfall is reported after half a second.
fn short_timeouts() -> Builder {
    Client::builder().poll_interval(NO_POLL).response_timeout(ms(1_200)).retry_for(ms(2_000))
}

/// Starts `count` replicas of the fixture's server, and waits until all are connected.
pub(crate) async fn start_replicas(fixture: &Fixture, count: usize) -> Vec<RedisServer> {
    let port = fixture.server().port();
    let mut replicas = Vec::new();
    for _ in 0..count {
        replicas.push(start_replica(fixture, port).await);
    }
    until_replicated(fixture, count).await;
    replicas
}

/// Starts a replica that connects to the fixture's server by a port, which may be a proxy's. Does not wait until it is connected.
async fn start_replica(fixture: &Fixture, port: u16) -> RedisServer {
    let mut cmd = redis::cmd("CONFIG");
    cmd.arg(&["SET", "repl-diskless-sync-delay", "0"]);
    let _: () = cmd.query_async(&mut fixture.raw_connection().await).await.expect("set");
    RedisServer::start_with(&["--replicaof", "127.0.0.1", &port.to_string()]).await
}

/// Waits until `count` replicas acknowledge a write: one that is frozen right after it connects might not be counted.
async fn until_replicated(fixture: &Fixture, count: usize) {
    let probe = async || {
        let mut plain = fixture.raw_connection().await;
        let _: () = redis::cmd("SET").arg("probe").arg(1).query_async(&mut plain).await.expect("written");
        let mut wait = redis::cmd("WAIT");
        let reached: usize = wait.arg(count).arg(100).query_async(&mut plain).await.expect("a reply");
        reached == count
    };
    eventually("all replicas follow", ms(20_000), probe).await;
}

/// One field of `INFO`.
async fn info(server: &RedisServer, section: &str, field: &str) -> String {
    let text: String =
        redis::cmd("INFO").arg(section).query_async(&mut server.client().await).await.expect("a reply");
    let prefix = format!("{field}:");
    let value = text.lines().find_map(|line| line.strip_prefix(&prefix));
    value.unwrap_or_else(|| panic!("no {field} in {text}")).to_owned()
}

/// The numbers of replicas that were wanted and reached, of the expected error.
fn shortfall<T>(outcome: Result<T, Error>) -> (u32, u32) {
    match outcome {
        Err(Error::NotEnoughReplicas { wanted, reached, .. }) => (wanted, reached),
        Err(error) => panic!("another error: {error}"),
        Ok(_) => panic!("it was granted"),
    }
}
