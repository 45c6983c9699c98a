//! A Redis cluster. Every step goes to the master that owns the slot of its name.

mod discovery;
mod refresh;
mod slot_map;

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, ready};
use redis::Cmd;
use tokio::sync::{Notify, watch};
use turnlock_core::{Backoff, Kind, LockName};

use crate::access::Address;
use crate::common::Common;
use crate::endpoint::Endpoint;
use crate::failure;
use crate::node::Node;
use crate::pubsub::subscriptions::ResubscribeQueue;
use crate::reply::{CallOptions, Reply};
use crate::script_call::ScriptCall;
use discovery::REPLY_LIMIT;
use slot_map::SlotMap;
use turnlock_store::clock;
use turnlock_store::{Failure, FailureKind};

/// The number of redirects that one step follows.
const MAX_REDIRECTS: u32 = 8;

/// The masters of a cluster and the map of their slots.
pub(crate) struct Cluster {
    pub(crate) common: Arc<Common>,
    pub(crate) seeds: Vec<Address>,
    map: watch::Sender<SlotMap>,
    nodes: Mutex<HashMap<Address, Arc<Node>>>,
    /// The subscribed names, each with its node. `None` while no node owns the slot.
    subscribed: Mutex<HashMap<LockName, Option<Address>>>,
    resubscribe: ResubscribeQueue,
    /// Requests a refresh of the slot map.
    refresh_needed: Arc<Notify>,
}

impl Cluster {
    /// Returns all nodes that own slots.
    pub(crate) fn masters(&self) -> Vec<Arc<Node>> {
        let owners = self.map().owners();
        owners.iter().map(|address| self.node(address)).collect()
    }

    /// Sends a call to the node that owns the slot of its name. Follows redirects.
    pub(crate) async fn call(&self, call: &Arc<ScriptCall>, options: CallOptions) -> Result<Reply, Failure> {
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
                    connected = node.connect_for(call, options) => {
                        connected.inspect_err(|_| self.refresh_needed.notify_one())?;
                    }
                    // Without this, a dead node would be awaited although another one owns the slot by now.
                    () = self.wait_until_slot_moves(slot, &address) => continue,
                }
            }
            let failure = match node.call(call, source.is_some(), options).await {
                Ok(reply) => return self.accept(reply, call, &address, source).await,
                Err(failure) => failure,
            };
            let Some(error) = failure::error_reply(&failure) else {
                self.refresh_needed.notify_one();
                return Err(failure);
            };
            match failure::redirect(error, &address) {
                Some(_) if redirects == MAX_REDIRECTS => {
                    let text = format!(
                        "more than {MAX_REDIRECTS} redirects: the nodes of the cluster disagree on slot {slot} ({error})"
                    );
                    return Err(Failure::unavailable(text));
                }
                Some(target) => {
                    redirects += 1;
                    let target = self.canonical(target);
                    if failure::is_ask(error) {
                        ask_target = Some((target, address));
                    } else {
                        self.moved(slot, &target);
                    }
                }
                None if failure::is_try_again(error) && !options.can_split && clock::now() < end => {
                    redirects = 0;
                    tokio::time::sleep(backoff.pause(fastrand::f64())).await;
                }
                None => {
                    if failure::is_cluster_error(error) {
                        self.refresh_needed.notify_one();
                    }
                    return Err(node.explain(failure, call, options.limit).await);
                }
            }
        }
    }

    /// Checks that a reply from `address` counts. `source` is the owner of the slot, if it is moving from there.
    async fn accept(
        &self,
        reply: Reply,
        call: &ScriptCall,
        address: &Address,
        source: Option<Address>,
    ) -> Result<Reply, Failure> {
        if matches!(&reply.replicas, Err(kind) if !matches!(kind, FailureKind::NotEnoughReplicas { .. })) {
            self.refresh_needed.notify_one();
        }
        let is_owner = |owner: &Address| owner == address || Some(owner) == source.as_ref();
        if !self.map().owner(call.lock.slot()).is_some_and(is_owner) {
            return Err(failure::demoted(reply.sent));
        }
        if let Some(source) = source.filter(|_| call.action().is_release()) {
            self.publish_at(&source, &call.lock).await;
        }
        Ok(reply)
    }

    /// Publishes a release also on the node that a slot is moving from.
    ///
    /// The script ran on the node that it moves to, and published there only. Subscribers are still on the old one.
    async fn publish_at(&self, source: &Address, name: &LockName) {
        if self.common.server_mode.has_sharded_pubsub() && name.kind().publishes_releases() {
            // If this fails, waiters find out when they poll.
            let _ =
                self.node(source).connection.command(&Cmd::spublish(name.channel(), 0), REPLY_LIMIT).await;
        }
    }

    /// Subscribes to releases of `name`. Waits for the confirmation, or until a time limit.
    pub(crate) fn subscribe(&self, name: &LockName) -> BoxFuture<'static, ()> {
        let mut subscribed = self.subscribed.lock();
        let address = self.owner(name.slot()).ok();
        subscribed.insert(name.clone(), address.clone());
        match address {
            Some(address) => self.node(&address).subscriber().subscribe(name),
            None => ready(()).boxed(),
        }
    }

    pub(crate) fn unsubscribe(&self, name: &LockName) {
        let mut subscribed = self.subscribed.lock();
        if let Some(Some(address)) = subscribed.remove(name) {
            self.unsubscribe_at(&address, name);
        }
    }

    fn unsubscribe_at(&self, address: &Address, name: &LockName) {
        let node = self.nodes.lock().get(address).cloned();
        if let Some(node) = node {
            node.subscriber().unsubscribe(name);
        }
    }

    fn owner(&self, slot: u16) -> Result<Address, Failure> {
        let owner = self.map().owner(slot).cloned();
        owner.ok_or_else(|| {
            self.refresh_needed.notify_one();
            Failure::unavailable(format!(
                "CLUSTERDOWN no node of the cluster owns slot {slot}; check it with `redis-cli --cluster check`"
            ))
        })
    }

    fn moved(&self, slot: u16, to: &Address) {
        tracing::debug!(slot, %to, "slot moved");
        self.map.send_modify(|map| map.moved(slot, to));
        self.refresh_needed.notify_one();
    }

    /// Returns the address by which the slot map knows a node.
    fn canonical(&self, address: Address) -> Address {
        self.map().canonical_addresses.get(&address).cloned().unwrap_or(address)
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
        let create = || {
            let endpoint = Endpoint::Fixed(address.clone());
            Arc::new(Node::new(&self.common, endpoint, Some(self.resubscribe.clone())))
        };
        Arc::clone(self.nodes.lock().entry(address.clone()).or_insert_with(create))
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
