//! Connects to the cluster, and keeps the slot map current.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, watch};
use turnlock_core::LockName;

use super::Cluster;
use super::discovery::{discover, gather};
use crate::access::{Access, Address};
use crate::common::Common;
use crate::config::ClusterMessages;
use crate::connection::Connection;
use turnlock_store::Failure;

/// How often the slot map of a healthy cluster is refreshed.
const REFRESH_PERIOD: Duration = Duration::from_secs(5);

/// How often it is refreshed while a master has failed or does not reply.
const UNHEALTHY_PERIOD: Duration = Duration::from_millis(250);

/// The shortest pause between two refreshes.
const MIN_PAUSE: Duration = Duration::from_millis(50);

/// The number of masters that one refresh queries.
const QUERIED_MASTERS: usize = 3;

/// Refreshes the slot map until the cluster is dropped.
pub(crate) async fn run(
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
    /// Loads the slot map from the seeds, and connects to the masters.
    pub(crate) async fn connect(
        seeds: Vec<Address>,
        messages: ClusterMessages,
        access: Access,
    ) -> Result<Arc<Self>, Failure> {
        let (map, server_mode) = discover(&seeds, messages, &access).await?;
        let (resubscribe, lost_names) = mpsc::unbounded_channel();
        let cluster = Arc::new(Self {
            common: Common::new(access, server_mode),
            seeds,
            map: watch::Sender::new(map),
            nodes: Mutex::default(),
            subscribed: Mutex::default(),
            resubscribe,
            refresh_needed: Arc::default(),
        });
        let masters = cluster.masters();
        let connected = join_all(masters.iter().map(|master| master.connection.live())).await;
        // One of them is enough. There is one, since `discover` returns no empty map.
        connected.into_iter().reduce(Result::or).transpose()?;
        tokio::spawn(run(Arc::downgrade(&cluster), Arc::clone(&cluster.refresh_needed), lost_names));
        Ok(cluster)
    }

    /// Refreshes the slot map. Returns `true` if the cluster is healthy.
    async fn refresh(&self) -> bool {
        let mut masters: Vec<_> = self.map().owners().into_iter().collect();
        fastrand::shuffle(&mut masters);
        masters.truncate(QUERIED_MASTERS);
        let (mut views, failed) = gather(masters, |address| Arc::clone(&self.node(address).connection)).await;
        let is_healthy = failed == 0 && !views.is_empty();
        if views.is_empty() {
            let mut addresses = self.map().peers.clone();
            addresses.extend(self.seeds.iter().cloned());
            (views, _) = gather(addresses, |address| Connection::for_queries(&self.common, address)).await;
        }
        self.apply_views(&views);
        is_healthy && !self.map().has_failed_master
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
        {
            // Kept until the end: a node that a redirect adds to the map meanwhile must not be dropped.
            let map = self.map();
            let owners = map.owners();
            self.nodes.lock().retain(|address, _| owners.contains(address));
        }
        if masters_changed {
            tracing::info!("the masters of the cluster changed");
            self.common.notify(|signals| signals.server_changed());
        }
    }

    /// Moves subscriptions to the current owners of their slots.
    fn move_subscriptions(&self) {
        let mut subscribed = self.subscribed.lock();
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
        let subscribed = self.subscribed.lock();
        for name in lost_names {
            if let Some(Some(address)) = subscribed.get(&name) {
                drop(self.node(address).subscriber().subscribe(&name));
            }
        }
    }
}
