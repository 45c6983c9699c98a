//! Looks at the cluster: at first, when something has changed, and now and then.

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
use super::{Cluster, PATIENCE};
use crate::backend::redis::access::Access;
use crate::backend::redis::address::Address;
use crate::backend::redis::common::Common;
use crate::backend::redis::failure;
use crate::backend::redis::link::{Link, Outcome, Purpose};
use crate::backend::redis::place::Place;
use crate::backend::redis::scripts::Dialect;
use crate::backend::redis::shape::ClusterMessages;
use crate::backend::{Failure, FailureKind};

/// How often the cluster is looked at when nothing seems to happen.
const POLL: Duration = Duration::from_secs(5);

/// The same while slots are about to change hands, or a master does not answer.
const QUICK_POLL: Duration = Duration::from_millis(250);

/// The least time between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// How long others are waited for when one has answered.
const LATER: Duration = Duration::from_millis(100);

/// How many of the masters are asked at once.
const WITNESSES: usize = 3;

/// What the seeds say, and how scripts are to speak.
pub(super) async fn first_look(
    seeds: &[Address],
    messages: ClusterMessages,
    access: &Access,
) -> Result<(SlotMap, Dialect), Failure> {
    let common = Arc::new(Common::new(access.clone(), Dialect::Cluster));
    let mut looks: FuturesUnordered<_> =
        seeds.iter().map(|seed| look_through(inquiry(&common, seed), seed, messages)).collect();
    let mut failures = Vec::new();
    let mut map = SlotMap::default();
    while let Some(look) = looks.next().await {
        match look {
            Ok((nodes, seed, dialect)) => {
                map.learn(&nodes, &seed, access.verifies_names());
                // One that was just added, or reset, knows of no slots.
                if !map.owners().is_empty() {
                    return Ok((map, dialect));
                }
                let text = format!("CLUSTERDOWN {seed} knows of no slots");
                failures.push(failure::unavailable(text));
            }
            Err(failure) => failures.push(failure),
        }
    }
    // A denial says more than a silence.
    failures.sort_by_key(Failure::is_worth_a_retry);
    let nobody = || failure::unavailable("no node of the cluster answers".to_owned());
    Err(failures.into_iter().next().unwrap_or_else(nobody))
}

fn inquiry(common: &Arc<Common>, address: &Address) -> Arc<Link> {
    Arc::new(Link::new(common, Place::Fixed(address.clone()), Purpose::Inquiry))
}

async fn look_through(
    link: Arc<Link>,
    seed: &Address,
    messages: ClusterMessages,
) -> Result<(String, Address, Dialect), Failure> {
    let nodes = ask_for_nodes(&link, seed).await?;
    let is_sharded = match messages {
        ClusterMessages::Sharded => true,
        ClusterMessages::Plain => false,
        ClusterMessages::Auto => {
            let mut probe = redis::cmd("PUBSUB");
            probe.arg("SHARDNUMSUB");
            matches!(link.command(&probe, PATIENCE).await?, Outcome::Answered(..))
        }
    };
    Ok((nodes, seed.clone(), if is_sharded { Dialect::ShardedCluster } else { Dialect::Cluster }))
}

async fn ask_for_nodes(link: &Arc<Link>, address: &Address) -> Result<String, Failure> {
    let mut question = redis::cmd("CLUSTER");
    question.arg("NODES");
    match link.command(&question, PATIENCE).await? {
        Outcome::Answered(Value::BulkString(text), _) => Ok(String::from_utf8_lossy(&text).into_owned()),
        Outcome::Answered(..) => Err(failure::unavailable(format!("{address} said nothing of a cluster"))),
        Outcome::Refused(error) if is_alone(&error) => Err(Failure::refused(FailureKind::Unsupported(
            format!("{address} as a cluster: it is a server alone; write redis://{address}"),
        ))),
        Outcome::Refused(error) => Err(failure::not_let_in(address, error)),
        Outcome::Unanswered(failure) => Err(failure),
    }
}

fn is_alone(error: &RedisError) -> bool {
    error.detail().is_some_and(|text| text.contains("cluster support disabled"))
}

/// Keeps the map right until the cluster is not used any more.
pub(super) async fn run(
    cluster: Weak<Cluster>,
    look: Arc<Notify>,
    mut orphans: mpsc::UnboundedReceiver<Vec<LockName>>,
) {
    let mut is_well = true;
    loop {
        let mut lost = Vec::new();
        tokio::select! {
            () = look.notified() => {}
            names = orphans.recv() => match names {
                Some(names) => lost.extend(names),
                // Those who could send some are gone.
                None => return,
            },
            () = tokio::time::sleep(if is_well { POLL } else { QUICK_POLL }) => {}
        }
        tokio::time::sleep(PAUSE).await;
        let Some(cluster) = cluster.upgrade() else { return };
        is_well = cluster.refresh().await;
        while let Ok(names) = orphans.try_recv() {
            lost.extend(names);
        }
        cluster.listen_again(lost);
    }
}

impl Cluster {
    /// Asks who has what, and goes by it. Whether all is well.
    async fn refresh(&self) -> bool {
        let mut masters: Vec<_> = self.map().owners().into_iter().cloned().collect();
        fastrand::shuffle(&mut masters);
        let linked = masters.iter().take(WITNESSES).map(|address| {
            let node = self.node(address);
            async move { (address.clone(), ask_for_nodes(&node.link, address).await) }
        });
        let (mut views, failed) = gather(linked.collect()).await;
        let is_well = failed == 0 && !views.is_empty();
        if views.is_empty() {
            let map = self.map().clone();
            let everybody: BTreeSet<_> = map.peers().chain(&self.seeds).cloned().collect();
            let asked = everybody.iter().map(|address| {
                let link = inquiry(&self.common, address);
                async move { (address.clone(), ask_for_nodes(&link, address).await) }
            });
            (views, _) = gather(asked.collect()).await;
        }
        self.adopt(&views);
        is_well && !self.map().is_ailing()
    }

    fn adopt(&self, views: &[(Address, String)]) {
        let by_name = self.common.access.verifies_names();
        let mut are_masters_others = false;
        self.map.send_if_modified(|map| {
            let before = map.clone();
            for (address, nodes) in views {
                map.learn(nodes, address, by_name);
            }
            are_masters_others = map.owners() != before.owners();
            *map != before
        });
        self.move_listeners();
        self.forget_nodes();
        if are_masters_others {
            tracing::info!("the masters of the cluster are other ones now");
            self.common.tell(|signals| signals.server_changed());
        }
    }

    /// Listens where the slots are now.
    fn move_listeners(&self) {
        let mut listened = self.listened();
        for (name, address) in listened.iter_mut() {
            let Some(owner) = self.map().owner(name.slot()).cloned() else { continue };
            if address.as_ref() != Some(&owner) {
                if let Some(before) = address.take() {
                    self.unlisten_at(&before, name);
                }
                // When it stands, the name is looked at again: nobody here waits for the confirmation.
                drop(self.node(&owner).subscriber().listen(name));
                *address = Some(owner);
            }
        }
    }

    /// Listens again for names that their node does not tell of any more.
    fn listen_again(&self, orphans: Vec<LockName>) {
        let listened = self.listened();
        for name in orphans {
            if let Some(Some(address)) = listened.get(&name) {
                drop(self.node(address).subscriber().listen(&name));
            }
        }
    }

    /// Lets go of nodes that have no slots any more.
    fn forget_nodes(&self) {
        let map = self.map();
        let owners = map.owners();
        self.nodes().retain(|address, _| owners.contains(address));
    }
}

type View = (Address, Result<String, Failure>);

/// The views of all who answer in time, and how many failed to. Who takes much longer than the first is not waited for.
async fn gather(mut asked: FuturesUnordered<impl Future<Output = View>>) -> (Vec<(Address, String)>, usize) {
    let (mut views, mut failed) = (Vec::new(), 0);
    let mut end = Instant::now() + PATIENCE;
    while let Ok(Some((address, view))) = tokio::time::timeout_at(end, asked.next()).await {
        match view {
            Ok(nodes) => {
                views.push((address, nodes));
                end = end.min(Instant::now() + LATER);
            }
            Err(failure) => {
                tracing::debug!(%address, %failure, "a node of the cluster is silent");
                failed += 1;
            }
        }
    }
    (views, failed)
}
