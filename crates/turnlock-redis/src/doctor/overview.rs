//! The servers at a glance, and the bare round trip. Writes nothing.

use std::time::Duration;

use futures_util::future::join_all;
use turnlock_store::{ClientProfile, Failure, Overview, ServerOverview, ServerRole};

use super::server_facts::ServerFacts;
use super::{check_server, clocks};
use crate::Redis;
use crate::failure::error_reply;

/// Reads the facts of every master, and makes the checks that need no test lock.
pub(super) async fn read(redis: &Redis, client: &ClientProfile) -> Result<Overview, Failure> {
    let servers = redis.servers(client.limit).await?;
    if servers.is_empty() {
        return Err(Failure::unavailable("no node of the cluster has slots"));
    }
    let facts = join_all(servers.iter().map(ServerFacts::read)).await;
    let mut findings: Vec<_> = facts.iter().flat_map(|facts| check_server(facts, client)).collect();
    findings.extend(clocks::compare(&facts));
    Ok(Overview::new(facts.iter().map(server).collect(), findings))
}

fn server(facts: &ServerFacts) -> ServerOverview {
    let info = facts.info.as_ref().ok();
    let latency = facts.round_trips.clone().map(|mut round_trips| {
        round_trips.sort_unstable();
        round_trips.get(round_trips.len() / 2).copied().unwrap_or_default()
    });
    let mut server = ServerOverview::new(&facts.address, latency);
    server.version = facts.version().map(|(product, version)| format!("{product} {version}"));
    server.role = info.and_then(|info| match info.get("role")? {
        "master" => Some(ServerRole::Primary),
        "slave" => Some(ServerRole::Replica),
        _ => None,
    });
    server.replicas = info.and_then(|info| info.number("connected_slaves"));
    server
}

/// Sends `PING` to a master; in a cluster, to one that is chosen at random.
pub(super) async fn ping(redis: &Redis, limit: Duration) -> Result<(), Failure> {
    let masters = redis.topology.masters();
    let Some(node) = fastrand::choice(&masters) else {
        return Err(Failure::unavailable("no node of the cluster has slots"));
    };
    match node.connection.command(&redis::cmd("PING"), limit).await {
        // An error reply takes a round trip as well.
        Err(failure) if error_reply(&failure).is_none() => Err(failure),
        Ok(_) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_described_by_its_facts() {
        let info = "valkey_version:9.1.2\nredis_version:7.2.4\nrole:master\nconnected_slaves:2";
        let seen = server(&ServerFacts::with(info, &[]));
        assert_eq!((seen.address.as_str(), seen.version.as_deref()), ("server:6379", Some("Valkey 9.1.2")));
        assert_eq!((seen.role, seen.replicas), (Some(ServerRole::Primary), Some(2)));
        assert_eq!(seen.latency, Ok(Duration::from_millis(1)));
        let facts = ServerFacts { info: Err("NOPERM".to_owned()), ..ServerFacts::with("", &[]) };
        let seen = server(&facts);
        assert_eq!((seen.version, seen.role, seen.replicas), (None, None, None));
        let facts = ServerFacts { round_trips: Err("no reply".to_owned()), ..facts };
        assert_eq!(server(&facts).latency, Err("no reply".to_owned()));
    }
}
