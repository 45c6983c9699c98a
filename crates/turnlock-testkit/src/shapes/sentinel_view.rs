//! What one sentinel believes.

use std::collections::HashMap;

use redis::RedisResult;

use crate::RedisServer;

/// The master as a sentinel sees it, and who else there is.
#[derive(Debug)]
pub(super) struct SentinelView {
    /// The port of the master.
    pub(super) master: u16,
    /// Whether it has nothing to say against the master, and no fail-over is under way.
    pub(super) is_calm: bool,
    /// The ports of the replicas that it has nothing to say against.
    pub(super) replicas: Vec<u16>,
    /// How many other sentinels it hears of.
    pub(super) others: usize,
}

impl SentinelView {
    /// Asks for all of it.
    pub(super) async fn of(sentinel: &RedisServer, name: &str) -> RedisResult<Self> {
        let replicas = people(sentinel, "REPLICAS", name).await?;
        let others = people(sentinel, "SENTINELS", name).await?;
        let master = Self::master_of(sentinel, name).await?;
        let state: HashMap<String, String> = sentinel.look(&["SENTINEL", "MASTER", name]).await?;
        let is_calm = state.get("flags").is_some_and(|flags| flags == "master");
        Ok(Self { master, is_calm, replicas: healthy(&replicas), others: healthy(&others).len() })
    }

    /// Asks for the port of the master alone.
    pub(super) async fn master_of(sentinel: &RedisServer, name: &str) -> RedisResult<u16> {
        let (_, port): (String, u16) = sentinel.look(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", name]).await?;
        Ok(port)
    }
}

async fn people(sentinel: &RedisServer, what: &str, name: &str) -> RedisResult<Vec<HashMap<String, String>>> {
    sentinel.look(&["SENTINEL", what, name]).await
}

/// The ports of those that can be reached. What they said about a master that has been replaced does not count.
fn healthy(people: &[HashMap<String, String>]) -> Vec<u16> {
    let is_bad = |flag: &str| ["s_down", "o_down", "disconnected"].contains(&flag);
    let is_healthy =
        |one: &&HashMap<String, String>| one.get("flags").is_some_and(|flags| !flags.split(',').any(is_bad));
    people.iter().filter(is_healthy).filter_map(|one| one.get("port")?.parse().ok()).collect()
}
