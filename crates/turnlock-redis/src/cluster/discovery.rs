//! Queries nodes about the cluster.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::Value;
use tokio::time::Instant;

use super::slot_map::SlotMap;
use crate::access::{Access, Address};
use crate::common::Common;
use crate::config::ClusterMessages;
use crate::connection::Connection;
use crate::failure;
use crate::lua::ServerMode;
use crate::reply::Reply;
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
    let common = Common::new(access.clone(), ServerMode::Cluster);
    let mut discoveries: FuturesUnordered<_> =
        seeds.iter().map(|seed| discover_from(&common, seed, messages)).collect();
    let mut failures = Vec::new();
    while let Some(discovery) = discoveries.next().await {
        match discovery {
            Ok(found) => return Ok(found),
            Err(failure) => failures.push(failure),
        }
    }
    let no_reply = || Failure::unavailable("no node of the cluster replied");
    // A denial tells more than a time-out.
    Err(failures.into_iter().min_by_key(Failure::is_retryable).unwrap_or_else(no_reply))
}

/// Queries one seed.
async fn discover_from(
    common: &Arc<Common>,
    seed: &Address,
    messages: ClusterMessages,
) -> Result<(SlotMap, ServerMode), Failure> {
    let connection = Connection::for_queries(common, seed);
    let mut map = SlotMap::default();
    map.apply(&query_nodes(&connection, seed).await?, seed, common.access.verifies_names());
    if map.owners().is_empty() {
        // The node was just added, or reset.
        return Err(Failure::unavailable(format!("CLUSTERDOWN {seed} knows no owner of slots")));
    }
    let is_sharded = match messages {
        ClusterMessages::Sharded => true,
        ClusterMessages::Plain => false,
        ClusterMessages::Auto => {
            let probe = redis::cmd("PUBSUB").arg("SHARDNUMSUB").take();
            match connection.command(&probe, REPLY_LIMIT).await {
                Ok(_) => true,
                Err(failure) if failure::error_reply(&failure).is_some() => false,
                Err(failure) => return Err(failure),
            }
        }
    };
    Ok((map, if is_sharded { ServerMode::ShardedCluster } else { ServerMode::Cluster }))
}

async fn query_nodes(connection: &Arc<Connection>, address: &Address) -> Result<String, Failure> {
    let query = redis::cmd("CLUSTER").arg("NODES").take();
    match connection.command(&query, REPLY_LIMIT).await {
        Ok(Reply { value: Value::BulkString(text), .. }) => Ok(String::from_utf8_lossy(&text).into_owned()),
        Ok(_) => Err(Failure::unavailable(format!("unexpected reply of {address} to CLUSTER NODES"))),
        Err(failure) if failure::has_detail(&failure, "cluster support disabled") => {
            Err(Failure::refused(FailureKind::Unsupported(format!(
                "{address} as a cluster, since it is a standalone server; use redis://{address}"
            ))))
        }
        Err(failure) => Err(failure::query_failed(address, failure)),
    }
}

/// Sends `CLUSTER NODES` to all addresses. Returns the replies in time, and the number of failures.
///
/// Nodes that take much longer than the first are not awaited.
pub(crate) async fn gather(
    addresses: impl IntoIterator<Item = Address>,
    connection: impl Fn(&Address) -> Arc<Connection>,
) -> (Vec<(Address, String)>, usize) {
    let queries = addresses.into_iter().map(|address| {
        let connection = connection(&address);
        async move { (query_nodes(&connection, &address).await, address) }
    });
    let mut queries: FuturesUnordered<_> = queries.collect();
    let (mut views, mut failed) = (Vec::new(), 0);
    let mut end = Instant::now() + REPLY_LIMIT;
    while let Ok(Some((view, address))) = tokio::time::timeout_at(end, queries.next()).await {
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
