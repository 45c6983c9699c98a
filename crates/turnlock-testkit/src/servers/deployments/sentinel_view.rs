//! The servers as one sentinel sees them.

use std::collections::HashMap;

use redis::RedisResult;

use crate::RedisServer;

/// The master, its replicas and the other sentinels, as one sentinel sees them.
#[derive(Debug)]
pub(super) struct SentinelView {
    /// The port of the master.
    pub(super) master: u16,
    /// Whether the master has no flag of a failure and no fail-over is under way.
    pub(super) is_healthy: bool,
    /// The ports of the healthy replicas.
    pub(super) replicas: Vec<u16>,
    /// How many other sentinels are healthy.
    pub(super) others: usize,
}

impl SentinelView {
    /// Queries a sentinel for everything.
    pub(super) async fn of(sentinel: &RedisServer, name: &str) -> RedisResult<Self> {
        let replicas = peers(sentinel, "REPLICAS", name).await?;
        let others = peers(sentinel, "SENTINELS", name).await?;
        let master = Self::master_of(sentinel, name).await?;
        let state: HashMap<String, String> = sentinel.probe(&["SENTINEL", "MASTER", name]).await?;
        let is_healthy = state.get("flags").is_some_and(|flags| flags == "master");
        Ok(Self { master, is_healthy, replicas: healthy(&replicas), others: healthy(&others).len() })
    }

    /// Queries a sentinel for the port of the master.
    pub(super) async fn master_of(sentinel: &RedisServer, name: &str) -> RedisResult<u16> {
        let (_, port): (String, u16) = sentinel.probe(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", name]).await?;
        Ok(port)
    }
}

async fn peers(sentinel: &RedisServer, what: &str, name: &str) -> RedisResult<Vec<HashMap<String, String>>> {
    sentinel.probe(&["SENTINEL", what, name]).await
}

/// Returns the ports of the reachable peers. Flags about a replaced master do not count.
fn healthy(peers: &[HashMap<String, String>]) -> Vec<u16> {
    let is_failure = |flag: &str| ["s_down", "o_down", "disconnected"].contains(&flag);
    let is_healthy = |peer: &&HashMap<String, String>| {
        peer.get("flags").is_some_and(|flags| !flags.split(',').any(is_failure))
    };
    peers.iter().filter(is_healthy).filter_map(|peer| peer.get("port")?.parse().ok()).collect()
}
