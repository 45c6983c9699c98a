use std::fmt;
use std::slice;
use std::sync::{Arc, Weak};

use futures_util::future::{BoxFuture, FutureExt, ready};
use turnlock_core::LockName;
use turnlock_core::model::{Reply as StepValue, Step};

use crate::cluster::Cluster;
use crate::common::Common;
use crate::config::{Servers, Target};
use crate::endpoint::{Endpoint, MasterFinder};
use crate::lua::ServerMode;
use crate::node::Node;
use crate::reply::{CallOptions, Reply};
use crate::script_call::ScriptCall;
use crate::sentinel::{Sentinels, failover};
use crate::{decode, lines, steps};
use turnlock_store::{Directory, Examination, Failure, ReplyFuture, Signals, StepOptions, StepReply, Store};

/// Locks on Redis: one server, a master that sentinels monitor, or a cluster.
#[derive(Debug)]
pub struct Redis {
    pub(crate) topology: Topology,
}

impl Redis {
    /// Connects. Must be called on the runtime that drives the connections from then on.
    pub async fn connect(target: Target) -> Result<Self, Failure> {
        Ok(Self { topology: Topology::connect(target).await? })
    }

    /// Sends a batch: one call for all lines, or one for each slot in a cluster.
    ///
    /// Each line has its own outcome.
    pub(crate) fn batch<L: Send + Sync + 'static, T: Send + 'static>(
        &self,
        lines: Vec<L>,
        name: fn(&L) -> &LockName,
        call: fn(&[L]) -> Result<ScriptCall, Failure>,
        options: CallOptions,
        decode: DecodeBatch<T>,
    ) -> ReplyFuture<Vec<Option<T>>> {
        let topology = self.topology.clone();
        let is_cluster = matches!(topology, Topology::Cluster(_));
        async move {
            let run = |lines: &[L]| {
                let (topology, call) = (topology.clone(), call(lines));
                let options = CallOptions { can_split: lines.len() > 1, ..options };
                async move {
                    let call = Arc::new(call?);
                    decode(&call, topology.call(&call, options).await?)
                }
                .boxed()
            };
            lines::run(lines, |line| if is_cluster { name(line).slot() } else { 0 }, run).await
        }
        .boxed()
    }
}

/// Decodes the reply to a batch: one outcome for each line.
type DecodeBatch<T> = fn(&ScriptCall, Reply) -> Result<StepReply<Vec<Option<T>>>, Failure>;

impl Store for Redis {
    fn call(&self, step: Step, options: StepOptions) -> ReplyFuture<StepValue> {
        if matches!(step, Step::Renew(..) | Step::Heartbeat(..)) {
            let batch = self.call_batch(vec![step], options);
            return Box::pin(async move {
                let StepReply { mut value, sent, replicas, .. } = batch.await?;
                // Without an outcome of its own, it may have taken effect.
                let in_doubt = || Failure {
                    in_doubt: Some(sent),
                    ..Failure::unavailable("the reply has no outcome of this step")
                };
                let value = value.pop().flatten().ok_or_else(in_doubt)?;
                Ok(StepReply { replicas, ..StepReply::new(value, sent) })
            });
        }
        let StepOptions { limit, replicas, caller } = options;
        let call = match steps::script_call(slice::from_ref(&step)) {
            Ok(call) => Arc::new(call.for_caller(caller)),
            Err(failure) => return ready(Err(failure)).boxed(),
        };
        let (topology, options) = (self.topology.clone(), CallOptions { limit, replicas, can_split: false });
        Box::pin(async move { decode::step(&call, topology.call(&call, options).await?) })
    }

    fn call_batch(&self, steps: Vec<Step>, options: StepOptions) -> ReplyFuture<Vec<Option<StepValue>>> {
        let StepOptions { limit, replicas, .. } = options;
        let options = CallOptions { limit, replicas, can_split: true };
        self.batch(steps, Step::name, steps::script_call, options, decode::batch)
    }

    fn subscribe(&self, name: &LockName) -> BoxFuture<'static, ()> {
        match &self.topology {
            Topology::One(node) => node.subscriber().subscribe(name),
            Topology::Cluster(cluster) => cluster.subscribe(name),
        }
    }

    fn shares_fair_subscriptions(&self) -> bool {
        true
    }

    fn unsubscribe(&self, name: &LockName) {
        match &self.topology {
            Topology::One(node) => node.subscriber().unsubscribe(name),
            Topology::Cluster(cluster) => cluster.unsubscribe(name),
        }
    }

    fn attach(&self, signals: Weak<dyn Signals>) {
        self.topology.common().attach(signals);
    }

    fn directory(&self) -> &dyn Directory {
        self
    }

    fn examination(&self) -> &dyn Examination {
        self
    }
}

/// The servers of the store. Routes each step to one of them.
#[derive(Clone)]
pub(crate) enum Topology {
    /// One server has all keys. With sentinels, its endpoint follows the master.
    One(Arc<Node>),
    Cluster(Arc<Cluster>),
}

impl Topology {
    pub(crate) async fn connect(target: Target) -> Result<Self, Failure> {
        let Target { servers, access, sentinel_access, messages } = target;
        match servers {
            Servers::One(address) => {
                Self::one(&Common::new(access, ServerMode::Standalone), Endpoint::Fixed(address)).await
            }
            Servers::Sentinels { sentinels, master } => {
                let common = Common::new(access, ServerMode::Standalone);
                let sentinels = Arc::new(Sentinels::new(sentinels, master, sentinel_access));
                let master = Arc::clone(&sentinels) as Arc<dyn MasterFinder>;
                let topology = Self::one(&common, Endpoint::Master(master)).await?;
                tokio::spawn(failover::watch(Arc::downgrade(&sentinels), Arc::downgrade(&common)));
                Ok(topology)
            }
            Servers::Cluster { seeds } => Ok(Self::Cluster(Cluster::connect(seeds, messages, access).await?)),
        }
    }

    async fn one(common: &Arc<Common>, endpoint: Endpoint) -> Result<Self, Failure> {
        let node = Arc::new(Node::new(common, endpoint, None));
        node.connect().await?;
        Ok(Self::One(node))
    }

    /// Sends a call to the server that has its keys.
    pub(crate) async fn call(&self, call: &Arc<ScriptCall>, options: CallOptions) -> Result<Reply, Failure> {
        match self {
            Self::One(node) => match node.call(call, false, options).await {
                Ok(reply) => Ok(reply),
                Err(failure) => Err(Box::pin(node.explain(failure, call, options.limit)).await),
            },
            Self::Cluster(cluster) => Box::pin(cluster.call(call, options)).await,
        }
    }

    /// Returns all masters.
    pub(crate) fn masters(&self) -> Vec<Arc<Node>> {
        match self {
            Self::One(node) => vec![Arc::clone(node)],
            Self::Cluster(cluster) => cluster.masters(),
        }
    }

    fn common(&self) -> &Common {
        match self {
            Self::One(node) => &node.connection.common,
            Self::Cluster(cluster) => &cluster.common,
        }
    }
}

impl fmt::Debug for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(node) => write!(f, "One({})", node.connection.endpoint),
            Self::Cluster(cluster) => write!(f, "Cluster({:?})", cluster.seeds),
        }
    }
}
