use std::sync::{Arc, Weak};

use super::arrival::{Arrival, Delivery};
use super::cluster::Cluster;
use super::common::Common;
use super::examined::Examined;
use super::node::Node;
use super::place::Place;
use super::script_call::ScriptCall;
use super::scripts::Dialect;
use super::sentinel_watch;
use super::sentinels::Sentinels;
use super::shape::{Shape, Target};
use crate::backend::{Failure, Signals};
use crate::doctor::Examinee;

/// The servers, and which of them a step goes to.
#[derive(Clone, Debug)]
pub(super) enum Topology {
    /// One server at a time has everything; which one, its place says.
    One(Arc<Node>),
    Cluster(Arc<Cluster>),
}

impl Topology {
    pub(super) async fn connect(Target { shape, access }: Target) -> Result<Self, Failure> {
        match shape {
            Shape::Single(address) => {
                Self::one(Arc::new(Common::new(access, Dialect::Alone)), Place::Fixed(address)).await
            }
            Shape::Sentinel { sentinels, master, access: sentinel_access } => {
                let common = Arc::new(Common::new(access, Dialect::Alone));
                let sentinels = Arc::new(Sentinels::new(sentinels, master, sentinel_access));
                let topology = Self::one(Arc::clone(&common), Place::Master(Arc::clone(&sentinels))).await?;
                tokio::spawn(sentinel_watch::run(Arc::downgrade(&sentinels), Arc::downgrade(&common)));
                Ok(topology)
            }
            Shape::Cluster { seeds, messages } => {
                Ok(Self::Cluster(Cluster::connect(seeds, messages, access).await?))
            }
        }
    }

    async fn one(common: Arc<Common>, place: Place) -> Result<Self, Failure> {
        let node = Arc::new(Node::new(&common, place, None));
        node.connect().await?;
        Ok(Self::One(node))
    }

    pub(super) async fn run(&self, call: &ScriptCall, delivery: Delivery) -> Result<Arrival, Failure> {
        match self {
            Self::One(node) => node.run(call, delivery).await,
            Self::Cluster(cluster) => Box::pin(cluster.run(call, delivery)).await,
        }
    }

    /// All masters.
    pub(super) fn masters(&self) -> Vec<Arc<Node>> {
        match self {
            Self::One(node) => vec![Arc::clone(node)],
            Self::Cluster(cluster) => cluster.masters(),
        }
    }

    /// All masters, to be examined.
    pub(super) async fn examinees(&self) -> Result<Vec<Arc<dyn Examinee>>, Failure> {
        let masters = self.masters();
        let examined = futures_util::future::join_all(masters.iter().map(Examined::new)).await;
        let examined = examined.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(examined.into_iter().map(|examined| Arc::new(examined) as Arc<dyn Examinee>).collect())
    }

    pub(super) fn attach(&self, signals: Weak<dyn Signals>) {
        match self {
            Self::One(node) => node.common.attach(signals),
            Self::Cluster(cluster) => cluster.common.attach(signals),
        }
    }
}
