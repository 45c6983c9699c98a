//! Locks that replicas must acknowledge: a master with replicas that are slow, frozen, cut off or promoted.

mod grants;
mod groups;
mod promotion;
mod renewals;
mod replay;
mod shortfalls;

use libtest_mimic::Trial;
use turnlock::{Builder, Client, Error};
use turnlock_testkit::{RedisServer, eventually};

use crate::held::Thing;
use crate::rig::{Kind, NO_POLL, Rig, ms};
use crate::store::Store;
use crate::trial_of;

/// What can be had from a replicated server, each in its way.
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

/// All cases, under a name of their own.
pub(crate) fn trials() -> impl Iterator<Item = Trial> {
    let of_kinds = KINDS.iter().flat_map(|kind| {
        let of_leases = [promotion::LEASE_CASES, replay::LEASE_CASES].concat();
        let of_leases = of_leases.into_iter().filter(|_| *kind != Kind::Semaphore);
        shortfalls::KIND_CASES.iter().copied().chain(of_leases).map(|case| (*kind, case))
    });
    let all =
        [grants::CASES, groups::CASES, promotion::CASES, renewals::CASES, replay::CASES, shortfalls::CASES];
    let of_locks = all.into_iter().flatten().map(|case| (Kind::Lock, *case));
    let on_redis = of_kinds.chain(of_locks).map(|(kind, case)| (Store::Redis, kind, case));
    let on_memory = grants::MEMORY_CASES.iter().map(|case| (Store::Memory, Kind::Lock, *case));
    on_redis.chain(on_memory).map(|(store, kind, (name, case))| {
        let title = format!("{}::replicas::{}::{name}", store.name(), kind.name());
        trial_of(&title, store.missing(), move || async move { case(Rig::new(store, kind).await).await })
    })
}

/// Settings with short waits for answers, so that a shortfall does not take long to be told: half a second.
fn hasty() -> Builder {
    Client::builder().poll(NO_POLL).response_timeout(ms(1_200)).retry_for(ms(2_000))
}

/// So many replicas of the rig's server, all in touch with it.
pub(crate) async fn replicas(rig: &Rig, count: usize) -> Vec<RedisServer> {
    let port = rig.server().port();
    let mut replicas = Vec::new();
    for _ in 0..count {
        replicas.push(replica_by(rig, port).await);
    }
    in_touch(rig, count).await;
    replicas
}

/// A replica that reaches the rig's server by a port, which may be a proxy's. Not yet in touch.
async fn replica_by(rig: &Rig, port: u16) -> RedisServer {
    let mut cmd = redis::cmd("CONFIG");
    cmd.arg(&["SET", "repl-diskless-sync-delay", "0"]);
    let _: () = cmd.query_async(&mut rig.plain().await).await.expect("set");
    RedisServer::start_with(&["--replicaof", "127.0.0.1", &port.to_string()]).await
}

/// Waits until so many replicas follow, and have said so: a frozen one that was only just there might not count.
async fn in_touch(rig: &Rig, count: usize) {
    let probe = async || {
        let mut plain = rig.plain().await;
        let _: () = redis::cmd("SET").arg("in touch?").arg(1).query_async(&mut plain).await.expect("written");
        let mut wait = redis::cmd("WAIT");
        let reached: usize = wait.arg(count).arg(100).query_async(&mut plain).await.expect("an answer");
        reached == count
    };
    eventually("all replicas follow", ms(20_000), probe).await;
}

/// One value of `INFO`.
async fn info(server: &RedisServer, section: &str, field: &str) -> String {
    let text: String =
        redis::cmd("INFO").arg(section).query_async(&mut server.client().await).await.expect("an answer");
    let prefix = format!("{field}:");
    let value = text.lines().find_map(|line| line.strip_prefix(&prefix));
    value.unwrap_or_else(|| panic!("no {field} in {text}")).to_owned()
}

/// How many replicas an error says were wanted, and were reached.
fn shortfall<T>(outcome: Result<T, Error>) -> (u32, u32) {
    match outcome {
        Err(Error::NotEnoughReplicas { wanted, reached, .. }) => (wanted, reached),
        Err(error) => panic!("another error: {error}"),
        Ok(_) => panic!("it was granted"),
    }
}
