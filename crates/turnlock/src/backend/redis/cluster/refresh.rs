//! Discovers the cluster, and keeps the slot map current.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{RedisError, Value};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use turnlock_core::LockName;

use super::slot_map::SlotMap;
use super::{Cluster, REPLY_LIMIT};
use crate::backend::redis::access::Access;
use crate::backend::redis::address::Address;
use crate::backend::redis::common::Common;
use crate::backend::redis::connection::{Connection, Outcome, Purpose};
use crate::backend::redis::endpoint::Endpoint;
use crate::backend::redis::failure;
use crate::backend::redis::scripts::ServerMode;
use crate::backend::redis::shape::ClusterMessages;
use crate::backend::{Failure, FailureKind};

/// How often the slot map of a healthy cluster is refreshed.
const REFRESH_PERIOD: Duration = Duration::from_secs(5);

/// How often it is refreshed while a master has failed or does not reply.
const UNHEALTHY_PERIOD: Duration = Duration::from_millis(250);

/// The shortest pause between two refreshes.
const MIN_PAUSE: Duration = Duration::from_millis(50);

/// How long to wait for other nodes after the first reply.
const STRAGGLER_LIMIT: Duration = Duration::from_millis(100);

/// The number of masters that one refresh queries.
const QUERIED_MASTERS: usize = 3;

/// Loads the slot map from the first seed that knows it, and chooses the mode of the scripts.
pub(super) async fn discover(
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
                failures.push(failure::unavailable(text));
            }
            Err(failure) => failures.push(failure),
        }
    }
    // A denial tells more than a time-out.
    failures.sort_by_key(Failure::is_retryable);
    let no_reply = || failure::unavailable("no node of the cluster replied".to_owned());
    Err(failures.into_iter().next().unwrap_or_else(no_reply))
}

/// Creates a connection for queries to one node.
fn discovery_connection(common: &Arc<Common>, address: &Address) -> Arc<Connection> {
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
            matches!(connection.command(&probe, REPLY_LIMIT).await?, Outcome::Replied(..))
        }
    };
    Ok((nodes, seed.clone(), if is_sharded { ServerMode::ShardedCluster } else { ServerMode::Cluster }))
}

async fn query_nodes(connection: &Arc<Connection>, address: &Address) -> Result<String, Failure> {
    let mut query = redis::cmd("CLUSTER");
    query.arg("NODES");
    match connection.command(&query, REPLY_LIMIT).await? {
        Outcome::Replied(Value::BulkString(text), _) => Ok(String::from_utf8_lossy(&text).into_owned()),
        Outcome::Replied(..) => {
            Err(failure::unavailable(format!("unexpected reply of {address} to CLUSTER NODES")))
        }
        Outcome::Refused(error) if is_standalone(&error) => Err(Failure::refused(FailureKind::Unsupported(
            format!("{address} as a cluster, since it is a standalone server; use redis://{address}"),
        ))),
        Outcome::Refused(error) => Err(failure::connect_failed(address, error)),
        Outcome::NoReply(failure) => Err(failure),
    }
}

fn is_standalone(error: &RedisError) -> bool {
    error.detail().is_some_and(|text| text.contains("cluster support disabled"))
}

/// Refreshes the slot map until the cluster is dropped.
pub(super) async fn run(
    cluster: Weak<Cluster>,
    refresh_needed: Arc<Notify>,
    mut lost_names: mpsc::UnboundedReceiver<Vec<LockName>>,
) {
    let mut is_healthy = true;
    loop {
        let mut lost = Vec::new();
        tokio::select! {
            () = refresh_needed.notified() => {}
            names = lost_names.recv() => match names {
                Some(names) => lost.extend(names),
                // All senders are dropped.
                None => return,
            },
            () = tokio::time::sleep(if is_healthy { REFRESH_PERIOD } else { UNHEALTHY_PERIOD }) => {}
        }
        tokio::time::sleep(MIN_PAUSE).await;
        let Some(cluster) = cluster.upgrade() else { return };
        is_healthy = cluster.refresh().await;
        while let Ok(names) = lost_names.try_recv() {
            lost.extend(names);
        }
        cluster.resubscribe(lost);
    }
}

impl Cluster {
    /// Refreshes the slot map. Returns `true` if the cluster is healthy.
    async fn refresh(&self) -> bool {
        let mut masters: Vec<_> = self.map().owners().into_iter().cloned().collect();
        fastrand::shuffle(&mut masters);
        let queries = masters.iter().take(QUERIED_MASTERS).map(|address| {
            let node = self.node(address);
            async move { (address.clone(), query_nodes(&node.connection, address).await) }
        });
        let (mut views, failed) = gather(queries.collect()).await;
        let is_healthy = failed == 0 && !views.is_empty();
        if views.is_empty() {
            let map = self.map().clone();
            let addresses: BTreeSet<_> = map.peers().chain(&self.seeds).cloned().collect();
            let queries = addresses.iter().map(|address| {
                let connection = discovery_connection(&self.common, address);
                async move { (address.clone(), query_nodes(&connection, address).await) }
            });
            (views, _) = gather(queries.collect()).await;
        }
        self.apply_views(&views);
        is_healthy && !self.map().has_failed_master()
    }

    fn apply_views(&self, views: &[(Address, String)]) {
        let by_name = self.common.access.verifies_names();
        let mut masters_changed = false;
        self.map.send_if_modified(|map| {
            let before = map.clone();
            for (address, nodes) in views {
                map.apply(nodes, address, by_name);
            }
            masters_changed = map.owners() != before.owners();
            *map != before
        });
        self.move_subscriptions();
        self.drop_unused_nodes();
        if masters_changed {
            tracing::info!("the masters of the cluster changed");
            self.common.notify(|signals| signals.server_changed());
        }
    }

    /// Moves subscriptions to the current owners of their slots.
    fn move_subscriptions(&self) {
        let mut subscribed = self.subscribed();
        for (name, address) in subscribed.iter_mut() {
            let Some(owner) = self.map().owner(name.slot()).cloned() else { continue };
            if address.as_ref() != Some(&owner) {
                if let Some(before) = address.take() {
                    self.unsubscribe_at(&before, name);
                }
                // Not awaited: once confirmed, the subscriber notifies the waiters of the name.
                drop(self.node(&owner).subscriber().subscribe(name));
                *address = Some(owner);
            }
        }
    }

    /// Subscribes again to names that their node no longer serves.
    fn resubscribe(&self, lost_names: Vec<LockName>) {
        let subscribed = self.subscribed();
        for name in lost_names {
            if let Some(Some(address)) = subscribed.get(&name) {
                drop(self.node(address).subscriber().subscribe(&name));
            }
        }
    }

    /// Drops nodes that own no slots.
    fn drop_unused_nodes(&self) {
        let map = self.map();
        let owners = map.owners();
        self.nodes().retain(|address, _| owners.contains(address));
    }
}

/// The reply of one node to `CLUSTER NODES`.
type View = (Address, Result<String, Failure>);

/// Collects the replies that arrive in time, and the number of failures.
///
/// Nodes that take much longer than the first are not awaited.
async fn gather(
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
