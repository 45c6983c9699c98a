use std::sync::{Arc, Weak};

use super::cluster::Cluster;
use super::common::Common;
use super::endpoint::Endpoint;
use super::node::Node;
use super::node_probe::NodeProbe;
use super::reply::{CallOptions, Reply};
use super::script_call::ScriptCall;
use super::scripts::ServerMode;
use super::sentinel_watch;
use super::sentinels::Sentinels;
use super::shape::{Shape, Target};
use crate::backend::{Failure, Signals};
use crate::doctor::ServerProbe;

/// The servers of the store. Routes each step to one of them.
#[derive(Clone, Debug)]
pub(super) enum Topology {
    /// One server has all keys. With sentinels, its endpoint follows the master.
    One(Arc<Node>),
    Cluster(Arc<Cluster>),
}

impl Topology {
    pub(super) async fn connect(Target { shape, access }: Target) -> Result<Self, Failure> {
        match shape {
            Shape::Single(address) => {
                Self::one(Arc::new(Common::new(access, ServerMode::Standalone)), Endpoint::Fixed(address))
                    .await
            }
            Shape::Sentinel { sentinels, master, access: sentinel_access } => {
                let common = Arc::new(Common::new(access, ServerMode::Standalone));
                let sentinels = Arc::new(Sentinels::new(sentinels, master, sentinel_access));
                let topology =
                    Self::one(Arc::clone(&common), Endpoint::Master(Arc::clone(&sentinels))).await?;
                tokio::spawn(sentinel_watch::run(Arc::downgrade(&sentinels), Arc::downgrade(&common)));
                Ok(topology)
            }
            Shape::Cluster { seeds, messages } => {
                Ok(Self::Cluster(Cluster::connect(seeds, messages, access).await?))
            }
        }
    }

    async fn one(common: Arc<Common>, endpoint: Endpoint) -> Result<Self, Failure> {
        let node = Arc::new(Node::new(&common, endpoint, None));
        node.connect().await?;
        Ok(Self::One(node))
    }

    pub(super) async fn run(&self, call: &ScriptCall, options: CallOptions) -> Result<Reply, Failure> {
        match self {
            Self::One(node) => node.run(call, options).await,
            Self::Cluster(cluster) => Box::pin(cluster.run(call, options)).await,
        }
    }

    /// Returns all masters.
    pub(super) fn masters(&self) -> Vec<Arc<Node>> {
        match self {
            Self::One(node) => vec![Arc::clone(node)],
            Self::Cluster(cluster) => cluster.masters(),
        }
    }

    /// Returns a probe for each master.
    pub(super) async fn server_probes(&self) -> Result<Vec<Arc<dyn ServerProbe>>, Failure> {
        let masters = self.masters();
        let probes = futures_util::future::join_all(masters.iter().map(NodeProbe::new)).await;
        let probes = probes.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(probes.into_iter().map(|probe| Arc::new(probe) as Arc<dyn ServerProbe>).collect())
    }

    pub(super) fn attach(&self, signals: Weak<dyn Signals>) {
        match self {
            Self::One(node) => node.common.attach(signals),
            Self::Cluster(cluster) => cluster.common.attach(signals),
        }
    }
}
