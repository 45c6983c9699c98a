//! A cluster: several masters, each with some of the slots. Every step goes to the one that has the slot of its name.

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
use super::arrival::{Arrival, Delivery, Landing};
use super::common::Common;
use super::failure::{self, Redirect};
use super::link::Outcome;
use super::node::Node;
use super::place::Place;
use super::script_call::ScriptCall;
use super::shape::ClusterMessages;
use super::subscriber::Orphanage;
use crate::backend::{Failure, FailureKind};
use crate::clock;
use slot_map::SlotMap;

/// How often one step follows a node that names another.
const REDIRECTS: u32 = 8;

/// How long a node has to answer questions about the cluster.
const PATIENCE: Duration = Duration::from_secs(1);

/// All masters of a cluster, and who has which slot.
pub(super) struct Cluster {
    pub(super) common: Arc<Common>,
    seeds: Vec<Address>,
    map: watch::Sender<SlotMap>,
    nodes: Mutex<HashMap<Address, Arc<Node>>>,
    /// What is listened for, and where; nowhere yet, while nobody has its slot.
    listened: Mutex<HashMap<LockName, Option<Address>>>,
    orphanage: Orphanage,
    /// Somebody has reason to look at the cluster again.
    look: Arc<Notify>,
}

impl Cluster {
    /// Asks the seeds who has what, and connects to those.
    pub(super) async fn connect(
        seeds: Vec<Address>,
        messages: ClusterMessages,
        access: Access,
    ) -> Result<Arc<Self>, Failure> {
        let (map, dialect) = refresh::first_look(&seeds, messages, &access).await?;
        let (orphanage, orphans) = mpsc::unbounded_channel();
        let cluster = Arc::new(Self {
            common: Arc::new(Common::new(access, dialect)),
            seeds,
            map: watch::Sender::new(map),
            nodes: Mutex::default(),
            listened: Mutex::default(),
            orphanage,
            look: Arc::default(),
        });
        cluster.check_a_master().await?;
        tokio::spawn(refresh::run(Arc::downgrade(&cluster), Arc::clone(&cluster.look), orphans));
        Ok(cluster)
    }

    /// Connects to all masters. An error if none of them lets us in.
    async fn check_a_master(&self) -> Result<(), Failure> {
        let masters: Vec<_> = self.map().owners().into_iter().cloned().collect();
        let connected = masters.iter().map(|address| {
            let node = self.node(address);
            async move { node.link.wire().await.map(drop) }
        });
        let outcomes = futures_util::future::join_all(connected).await;
        if outcomes.iter().any(Result::is_ok) {
            return Ok(());
        }
        let nobody = || failure::unavailable("CLUSTERDOWN no node of the cluster has slots".to_owned());
        Err(outcomes.into_iter().find_map(Result::err).unwrap_or_else(nobody))
    }

    /// All that have slots.
    pub(super) fn masters(&self) -> Vec<Arc<Node>> {
        let addresses: Vec<_> = self.map().owners().into_iter().cloned().collect();
        addresses.iter().map(|address| self.node(address)).collect()
    }

    /// Runs a script where the slot of its name is, wherever that is just now.
    pub(super) async fn run(&self, call: &ScriptCall, delivery: Delivery) -> Result<Arrival, Failure> {
        check_name(&call.lock)?;
        let slot = call.lock.slot();
        let end = clock::now() + delivery.limit;
        let mut backoff = Backoff::new(Duration::from_millis(5), Duration::from_millis(50));
        let mut asked_by: Option<(Address, Address)> = None;
        let mut redirects = 0;
        loop {
            let (address, source) = match asked_by.take() {
                Some((target, source)) => (target, Some(source)),
                None => (self.owner(slot)?, None),
            };
            let node = self.node(&address);
            if source.is_none() {
                tokio::select! {
                    made = node.connect_for(delivery) => made.inspect_err(|_| self.look.notify_one())?,
                    // A node that died in silence would be waited for although another one has the slot by now.
                    () = self.slot_leaves(slot, &address) => continue,
                }
            }
            let landing = node.ask(call, source.is_some(), delivery).await;
            let landing = landing.inspect_err(|_| self.look.notify_one())?;
            if matches!(landing.acknowledged, Some(Err(_))) {
                self.look.notify_one();
            }
            let Outcome::Refused(error) = landing.outcome else {
                match (&landing.outcome, source) {
                    (Outcome::Answered(_, sent), source) if !self.has(slot, &address, source.as_ref()) => {
                        return Err(failure::deposed(*sent));
                    }
                    (Outcome::Answered(..), Some(source)) if call.is_an_end() => {
                        self.tell_at(&source, &call.lock).await;
                    }
                    (Outcome::Unanswered(_), _) => self.look.notify_one(),
                    _ => {}
                }
                return node.judge(landing, call, delivery).await;
            };
            match failure::redirect(&error, &address) {
                Some(_) if redirects == REDIRECTS => {
                    let text = format!("the nodes of the cluster do not agree who has slot {slot}: {error}");
                    return Err(failure::unavailable(text));
                }
                Some(redirect) => {
                    redirects += 1;
                    match redirect {
                        Redirect::Ask(target) => asked_by = Some((self.known_as(target), address)),
                        Redirect::Moved(target) => self.moved(slot, &self.known_as(target)),
                    }
                }
                None if failure::is_split(&error) && !delivery.is_divisible && clock::now() < end => {
                    redirects = 0;
                    tokio::time::sleep(backoff.pause(fastrand::f64())).await;
                }
                None => {
                    if failure::is_of_cluster(&error) {
                        self.look.notify_one();
                    }
                    let landing = Landing { outcome: Outcome::Refused(error), acknowledged: None };
                    return node.judge(landing, call, delivery).await;
                }
            }
        }
    }

    /// Tells those who listen where a slot is moving from. The script ran where it moves to, and was heard there only.
    async fn tell_at(&self, source: &Address, name: &LockName) {
        if self.common.dialect.is_sharded() && name.kind().is_told() {
            let mut cmd = redis::cmd("SPUBLISH");
            cmd.arg(name.channel()).arg(0);
            // If this fails, they find out when they next look.
            let _ = self.node(source).link.command(&cmd, PATIENCE).await;
        }
    }

    /// Ready when a release of `name` will be heard of, or after a while.
    pub(super) fn listen(&self, name: &LockName) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let mut listened = self.listened();
        let address = self.owner(name.slot()).ok();
        listened.insert(name.clone(), address.clone());
        match address {
            Some(address) => self.node(&address).subscriber().listen(name),
            None => Box::pin(std::future::ready(())),
        }
    }

    pub(super) fn unlisten(&self, name: &LockName) {
        let mut listened = self.listened();
        if let Some(Some(address)) = listened.remove(name) {
            self.unlisten_at(&address, name);
        }
    }

    fn unlisten_at(&self, address: &Address, name: &LockName) {
        let node = self.nodes().get(address).cloned();
        if let Some(node) = node {
            node.subscriber().unlisten(name);
        }
    }

    fn owner(&self, slot: u16) -> Result<Address, Failure> {
        let owner = self.map().owner(slot).cloned();
        owner.ok_or_else(|| {
            self.look.notify_one();
            failure::unavailable(format!("CLUSTERDOWN no node of the cluster has slot {slot}"))
        })
    }

    fn moved(&self, slot: u16, to: &Address) {
        tracing::debug!(slot, %to, "a slot has moved");
        self.map.send_modify(|map| map.moved(slot, to));
        self.look.notify_one();
    }

    /// Whether an answer from `address` counts: from the one that has the slot, or from where it is moving to.
    fn has(&self, slot: u16, address: &Address, source: Option<&Address>) -> bool {
        let map = self.map();
        map.owner(slot).is_some_and(|owner| owner == address || Some(owner) == source)
    }

    /// The name by which a node is known here.
    fn known_as(&self, address: Address) -> Address {
        self.map().known_as(&address).cloned().unwrap_or(address)
    }

    /// Waits until the slot is known to be elsewhere.
    async fn slot_leaves(&self, slot: u16, address: &Address) {
        let mut map = self.map.subscribe();
        // Fails only when the sender is gone, which is here.
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
        let place = Place::Fixed(address.clone());
        let node = Arc::new(Node::new(&self.common, place, Some(self.orphanage.clone())));
        nodes.insert(address.clone(), Arc::clone(&node));
        node
    }

    fn nodes(&self) -> MutexGuard<'_, HashMap<Address, Arc<Node>>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn listened(&self) -> MutexGuard<'_, HashMap<LockName, Option<Address>>> {
        self.listened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("seeds", &self.seeds).finish_non_exhaustive()
    }
}

/// An error for a name whose keys and channel would be in different slots.
fn check_name(name: &LockName) -> Result<(), Failure> {
    // A plain lock has one key and no channel.
    if name.kind() == Kind::Plain || !name.splits_slots() {
        return Ok(());
    }
    Err(Failure::refused(FailureKind::Unsupported(format!(
        "the {} {:?} in a cluster: by Redisson's rule for braces its keys and its channel fall into different slots; \
         use a name without braces, or with one pair around something",
        name.kind().noun(),
        name.as_str()
    ))))
}
