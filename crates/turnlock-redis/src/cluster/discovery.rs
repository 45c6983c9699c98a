//! Queries nodes about the cluster.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{RedisError, Value};
use tokio::time::Instant;

use super::slot_map::SlotMap;
use crate::access::Access;
use crate::access::Address;
use crate::common::Common;
use crate::config::ClusterMessages;
use crate::connection::{Connection, Purpose};
use crate::endpoint::Endpoint;
use crate::failure;
use crate::lua::ServerMode;
use crate::reply::{Reply, RequestError};
use turnlock_store::{Failure, FailureKind};

/// The time limit for replies to queries about the cluster.
pub(crate) const REPLY_LIMIT: Duration = Duration::from_secs(1);

/// How long to wait for other nodes after the first reply.
const STRAGGLER_LIMIT: Duration = Duration::from_millis(100);

/// Loads the slot map from the first seed that knows it, and chooses the mode of the scripts.
pub(crate) async fn discover(
    seeds: &[Address],
    messages: ClusterMessages,
    access: &Access,
) -> Result<(SlotMap, ServerMode), Failure> {
    let common = Arc::new(Common::new(access.clone(), ServerMode::Cluster));
    let mut discoveries: FuturesUnordered<_> =
        seeds.iter().map(|seed| discover_from(discovery_connection(&common, seed), seed, messages)).collect();
    let mut failures = Vec::new();
    let mut map = SlotMap::default();
    while let Some(discovery) = discoveries.next().await {
        match discovery {
            Ok((nodes, seed, server_mode)) => {
                map.apply(&nodes, &seed, access.verifies_names());
                // A node that was just added, or reset, knows no slots.
                if !map.owners().is_empty() {
                    return Ok((map, server_mode));
                }
                let text = format!("CLUSTERDOWN {seed} knows no owner of slots");
                failures.push(Failure::unavailable(text));
            }
            Err(failure) => failures.push(failure),
        }
    }
    // A denial tells more than a time-out.
    failures.sort_by_key(Failure::is_retryable);
    let no_reply = || Failure::unavailable("no node of the cluster replied");
    Err(failures.into_iter().next().unwrap_or_else(no_reply))
}

/// Creates a connection for queries to one node.
pub(crate) fn discovery_connection(common: &Arc<Common>, address: &Address) -> Arc<Connection> {
    Arc::new(Connection::new(common, Endpoint::Fixed(address.clone()), Purpose::Discovery))
}

/// Queries one seed.
async fn discover_from(
    connection: Arc<Connection>,
    seed: &Address,
    messages: ClusterMessages,
) -> Result<(String, Address, ServerMode), Failure> {
    let nodes = query_nodes(&connection, seed).await?;
    let is_sharded = match messages {
        ClusterMessages::Sharded => true,
        ClusterMessages::Plain => false,
        ClusterMessages::Auto => {
            let mut probe = redis::cmd("PUBSUB");
            probe.arg("SHARDNUMSUB");
            match connection.command(&probe, REPLY_LIMIT).await {
                Ok(_) => true,
                Err(RequestError::Refused(_)) => false,
                Err(RequestError::Failed(failure)) => return Err(failure),
            }
        }
    };
    Ok((nodes, seed.clone(), if is_sharded { ServerMode::ShardedCluster } else { ServerMode::Cluster }))
}

pub(crate) async fn query_nodes(connection: &Arc<Connection>, address: &Address) -> Result<String, Failure> {
    let mut query = redis::cmd("CLUSTER");
    query.arg("NODES");
    match connection.command(&query, REPLY_LIMIT).await {
        Ok(Reply { value: Value::BulkString(text), .. }) => Ok(String::from_utf8_lossy(&text).into_owned()),
        Ok(_) => Err(Failure::unavailable(format!("unexpected reply of {address} to CLUSTER NODES"))),
        Err(RequestError::Refused(error)) if is_standalone(&error) => {
            Err(Failure::refused(FailureKind::Unsupported(format!(
                "{address} as a cluster, since it is a standalone server; use redis://{address}"
            ))))
        }
        Err(RequestError::Refused(error)) => Err(failure::connect_failed(address, error)),
        Err(RequestError::Failed(failure)) => Err(failure),
    }
}

fn is_standalone(error: &RedisError) -> bool {
    error.detail().is_some_and(|text| text.contains("cluster support disabled"))
}

/// The reply of one node to `CLUSTER NODES`.
type View = (Address, Result<String, Failure>);

/// Collects the replies that arrive in time, and the number of failures.
///
/// Nodes that take much longer than the first are not awaited.
pub(crate) async fn gather(
    mut queries: FuturesUnordered<impl Future<Output = View>>,
) -> (Vec<(Address, String)>, usize) {
    let (mut views, mut failed) = (Vec::new(), 0);
    let mut end = Instant::now() + REPLY_LIMIT;
    while let Ok(Some((address, view))) = tokio::time::timeout_at(end, queries.next()).await {
        match view {
            Ok(nodes) => {
                views.push((address, nodes));
                end = end.min(Instant::now() + STRAGGLER_LIMIT);
            }
            Err(failure) => {
                tracing::debug!(%address, %failure, "cluster node did not reply");
                failed += 1;
            }
        }
    }
    (views, failed)
}
