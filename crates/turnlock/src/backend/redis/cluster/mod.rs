//! A Redis cluster. Every step goes to the master that owns the slot of its name.

mod refresh;
mod slot_map;

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};
use turnlock_core::{Backoff, Kind, LockName};

use super::access::Access;
use super::address::Address;
use super::common::Common;
use super::connection::Outcome;
use super::endpoint::Endpoint;
use super::failure::{self, Redirect};
use super::node::Node;
use super::reply::{CallOptions, ReplicatedReply, Reply};
use super::script_call::ScriptCall;
use super::shape::ClusterMessages;
use super::subscriber::ResubscribeQueue;
use crate::backend::{Failure, FailureKind};
use crate::clock;
use slot_map::SlotMap;

/// The number of redirects that one step follows.
const MAX_REDIRECTS: u32 = 8;

/// The time limit for replies to queries about the cluster.
const REPLY_LIMIT: Duration = Duration::from_secs(1);

/// The masters of a cluster and the map of their slots.
pub(super) struct Cluster {
    pub(super) common: Arc<Common>,
    seeds: Vec<Address>,
    map: watch::Sender<SlotMap>,
    nodes: Mutex<HashMap<Address, Arc<Node>>>,
    /// The subscribed names, each with its node. `None` while no node owns the slot.
    subscribed: Mutex<HashMap<LockName, Option<Address>>>,
    resubscribe: ResubscribeQueue,
    /// Requests a refresh of the slot map.
    refresh_needed: Arc<Notify>,
}

impl Cluster {
    /// Loads the slot map from the seeds, and connects to the masters.
    pub(super) async fn connect(
        seeds: Vec<Address>,
        messages: ClusterMessages,
        access: Access,
    ) -> Result<Arc<Self>, Failure> {
        let (map, server_mode) = refresh::discover(&seeds, messages, &access).await?;
        let (resubscribe, lost_names) = mpsc::unbounded_channel();
        let cluster = Arc::new(Self {
            common: Arc::new(Common::new(access, server_mode)),
            seeds,
            map: watch::Sender::new(map),
            nodes: Mutex::default(),
            subscribed: Mutex::default(),
            resubscribe,
            refresh_needed: Arc::default(),
        });
        cluster.connect_masters().await?;
        tokio::spawn(refresh::run(Arc::downgrade(&cluster), Arc::clone(&cluster.refresh_needed), lost_names));
        Ok(cluster)
    }

    /// Connects to all masters.
    ///
    /// # Errors
    ///
    /// No connection succeeded.
    async fn connect_masters(&self) -> Result<(), Failure> {
        let masters: Vec<_> = self.map().owners().into_iter().cloned().collect();
        let connected = masters.iter().map(|address| {
            let node = self.node(address);
            async move { node.connection.live().await.map(drop) }
        });
        let outcomes = futures_util::future::join_all(connected).await;
        if outcomes.iter().any(Result::is_ok) {
            return Ok(());
        }
        let no_owner = || {
            failure::unavailable(
                "CLUSTERDOWN no node of the cluster owns slots; check it with `redis-cli --cluster check`"
                    .to_owned(),
            )
        };
        Err(outcomes.into_iter().find_map(Result::err).unwrap_or_else(no_owner))
    }

    /// Returns all nodes that own slots.
    pub(super) fn masters(&self) -> Vec<Arc<Node>> {
        let addresses: Vec<_> = self.map().owners().into_iter().cloned().collect();
        addresses.iter().map(|address| self.node(address)).collect()
    }

    /// Runs a script on the node that owns the slot of its name. Follows redirects.
    pub(super) async fn run(&self, call: &ScriptCall, options: CallOptions) -> Result<Reply, Failure> {
        check_name(&call.lock)?;
        let slot = call.lock.slot();
        let end = clock::now() + options.limit;
        let mut backoff = Backoff::new(Duration::from_millis(5), Duration::from_millis(50));
        let mut ask_target: Option<(Address, Address)> = None;
        let mut redirects = 0;
        loop {
            let (address, source) = match ask_target.take() {
                Some((target, source)) => (target, Some(source)),
                None => (self.owner(slot)?, None),
            };
            let node = self.node(&address);
            if source.is_none() {
                tokio::select! {
                    connected = node.connect_for(options) => {
                        connected.inspect_err(|_| self.refresh_needed.notify_one())?;
                    }
                    // Without this, a dead node would be awaited although another one owns the slot by now.
                    () = self.wait_until_slot_moves(slot, &address) => continue,
                }
            }
            let reply = node.call(call, source.is_some(), options).await;
            let reply = reply.inspect_err(|_| self.refresh_needed.notify_one())?;
            if matches!(reply.acknowledged, Some(Err(_))) {
                self.refresh_needed.notify_one();
            }
            let Outcome::Refused(error) = reply.outcome else {
                match (&reply.outcome, source) {
                    (Outcome::Replied(_, sent), source)
                        if !self.accepts_reply(slot, &address, source.as_ref()) =>
                    {
                        return Err(failure::demoted(*sent));
                    }
                    (Outcome::Replied(..), Some(source)) if call.is_release() => {
                        self.publish_at(&source, &call.lock).await;
                    }
                    (Outcome::NoReply(_), _) => self.refresh_needed.notify_one(),
                    _ => {}
                }
                return node.classify(reply, call, options).await;
            };
            match failure::redirect(&error, &address) {
                Some(_) if redirects == MAX_REDIRECTS => {
                    let text = format!(
                        "more than {MAX_REDIRECTS} redirects: the nodes of the cluster disagree on slot {slot} ({error})"
                    );
                    return Err(failure::unavailable(text));
                }
                Some(redirect) => {
                    redirects += 1;
                    match redirect {
                        Redirect::Ask(target) => ask_target = Some((self.canonical(target), address)),
                        Redirect::Moved(target) => self.moved(slot, &self.canonical(target)),
                    }
                }
                None if failure::is_try_again(&error) && !options.can_split && clock::now() < end => {
                    redirects = 0;
                    tokio::time::sleep(backoff.pause(fastrand::f64())).await;
                }
                None => {
                    if failure::is_cluster_error(&error) {
                        self.refresh_needed.notify_one();
                    }
                    let reply = ReplicatedReply { outcome: Outcome::Refused(error), acknowledged: None };
                    return node.classify(reply, call, options).await;
                }
            }
        }
    }

    /// Publishes a release also on the node that a slot is moving from.
    ///
    /// The script ran on the node that it moves to, and published there only. Subscribers are still on the old one.
    async fn publish_at(&self, source: &Address, name: &LockName) {
        if self.common.server_mode.has_sharded_pubsub() && name.kind().publishes_releases() {
            let mut cmd = redis::cmd("SPUBLISH");
            cmd.arg(name.channel()).arg(0);
            // If this fails, waiters find out when they poll.
            let _ = self.node(source).connection.command(&cmd, REPLY_LIMIT).await;
        }
    }

    /// Subscribes to releases of `name`. Waits for the confirmation, or until a time limit.
    pub(super) fn subscribe(&self, name: &LockName) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let mut subscribed = self.subscribed();
        let address = self.owner(name.slot()).ok();
        subscribed.insert(name.clone(), address.clone());
        match address {
            Some(address) => self.node(&address).subscriber().subscribe(name),
            None => Box::pin(std::future::ready(())),
        }
    }

    pub(super) fn unsubscribe(&self, name: &LockName) {
        let mut subscribed = self.subscribed();
        if let Some(Some(address)) = subscribed.remove(name) {
            self.unsubscribe_at(&address, name);
        }
    }

    fn unsubscribe_at(&self, address: &Address, name: &LockName) {
        let node = self.nodes().get(address).cloned();
        if let Some(node) = node {
            node.subscriber().unsubscribe(name);
        }
    }

    fn owner(&self, slot: u16) -> Result<Address, Failure> {
        let owner = self.map().owner(slot).cloned();
        owner.ok_or_else(|| {
            self.refresh_needed.notify_one();
            failure::unavailable(format!(
                "CLUSTERDOWN no node of the cluster owns slot {slot}; check it with `redis-cli --cluster check`"
            ))
        })
    }

    fn moved(&self, slot: u16, to: &Address) {
        tracing::debug!(slot, %to, "slot moved");
        self.map.send_modify(|map| map.moved(slot, to));
        self.refresh_needed.notify_one();
    }

    /// Returns `true` if a reply from `address` counts.
    ///
    /// It does if the node owns the slot, or was asked because the slot is moving there from its owner `source`.
    fn accepts_reply(&self, slot: u16, address: &Address, source: Option<&Address>) -> bool {
        let map = self.map();
        map.owner(slot).is_some_and(|owner| owner == address || Some(owner) == source)
    }

    /// Returns the address by which the slot map knows a node.
    fn canonical(&self, address: Address) -> Address {
        self.map().canonical(&address).cloned().unwrap_or(address)
    }

    /// Waits until another node owns the slot.
    async fn wait_until_slot_moves(&self, slot: u16, address: &Address) {
        let mut map = self.map.subscribe();
        // Fails only if the sender is dropped, which `self` owns.
        let _ = map.wait_for(|map| map.owner(slot).is_some_and(|owner| owner != address)).await;
    }

    fn map(&self) -> watch::Ref<'_, SlotMap> {
        self.map.borrow()
    }

    fn node(&self, address: &Address) -> Arc<Node> {
        let mut nodes = self.nodes();
        if let Some(node) = nodes.get(address) {
            return Arc::clone(node);
        }
        let endpoint = Endpoint::Fixed(address.clone());
        let node = Arc::new(Node::new(&self.common, endpoint, Some(self.resubscribe.clone())));
        nodes.insert(address.clone(), Arc::clone(&node));
        node
    }

    fn nodes(&self) -> MutexGuard<'_, HashMap<Address, Arc<Node>>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn subscribed(&self) -> MutexGuard<'_, HashMap<LockName, Option<Address>>> {
        self.subscribed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("seeds", &self.seeds).finish_non_exhaustive()
    }
}

/// Checks that the keys and the channel of a name are in one slot.
///
/// # Errors
///
/// They are not, since the name contains braces.
fn check_name(name: &LockName) -> Result<(), Failure> {
    // A plain lock has one key and no channel.
    if name.kind() == Kind::Plain || !name.splits_slots() {
        return Ok(());
    }
    Err(Failure::refused(FailureKind::Unsupported(format!(
        "the {} {:?} in a cluster: by Redisson's rule for braces, its keys and its channel are in different slots; \
         use a name without braces, or with one non-empty pair",
        name.kind().label(),
        name.as_str()
    ))))
}
