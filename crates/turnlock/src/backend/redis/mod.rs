//! The Redis backend: each step is one script call, its reply is decoded into a typed value.

mod access;
mod address;
#[cfg(feature = "tls")]
mod any_server;
mod batched_call;
mod batcher;
mod client_record;
mod cluster;
mod common;
mod connection;
mod decode;
mod endpoint;
mod failure;
mod fair;
mod find;
mod handshake;
mod key_probe;
mod latch;
mod lines;
mod node;
mod node_probe;
mod permits;
mod plain;
mod pubsub;
mod read_write;
mod reentrant;
mod replicated;
mod replicated_pipelines;
mod reply;
mod requests;
mod script_call;
mod scripts;
mod secret;
mod semaphore;
mod sentinel_report;
mod sentinel_watch;
mod sentinels;
mod shape;
mod subscriber;
mod subscriptions;
#[cfg(test)]
mod tests;
#[cfg(feature = "tls")]
mod tls_dialler;
#[cfg(not(feature = "tls"))]
#[path = "no_tls_dialler.rs"]
mod tls_dialler;
#[cfg(feature = "tls")]
mod tls_error;
mod topology;

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::Value;
use turnlock_core::model::{
    AcquireOptions, Acquired, Claim, CounterOp, QueuePosition, Released, Renewed, Snapshot,
};
use turnlock_core::{ClientId, Kind, Lease, LockName, OwnerId};

pub(crate) use access::Access;
pub(crate) use address::Address;
pub(crate) use secret::Secret;
pub use shape::ClusterMessages;
pub(crate) use shape::{Shape, Target};
pub(crate) use tls_dialler::TlsDialler;

use super::{
    Backend, Failure, FailureKind, FairWaiter, FoundKeys, Renewal, Search, Sent, ServerProbes, Signals, Step,
    StepOptions, StepReply,
};
use key_probe::KeyProbe;
use reply::{CallOptions, Reply};
use script_call::ScriptCall;
use topology::Topology;

/// Locks on Redis: one server, a master that sentinels monitor, or a cluster.
#[derive(Debug)]
pub(crate) struct Redis {
    topology: Topology,
}

impl Redis {
    /// Connects. Must be called on the runtime that drives the connections from then on.
    pub(crate) async fn connect(target: Target) -> Result<Self, Failure> {
        Ok(Self { topology: Topology::connect(target).await? })
    }

    /// Runs one script that no replica must acknowledge.
    fn step<T: Send + 'static>(
        &self,
        call: ScriptCall,
        limit: Duration,
        decode: impl FnOnce(Value) -> Result<T, Value> + Send + 'static,
    ) -> Step<T> {
        let options = CallOptions::unreplicated(limit);
        run_script(self.topology.clone(), call, options, |Reply { value, sent, .. }| {
            Ok(StepReply::new(decode(value).map_err(|value| unexpected_reply(&value))?, sent))
        })
    }

    /// Runs a batch: one call for all lines, or one for each slot in a cluster.
    ///
    /// Each line has its own outcome.
    fn batch<L: Clone + Send + Sync + 'static, T: Send + 'static>(
        &self,
        lines: &[L],
        name: fn(&L) -> &LockName,
        call: fn(&[L]) -> ScriptCall,
        options: CallOptions,
        decode: Decode<Vec<Option<T>>>,
    ) -> Step<Vec<Option<T>>> {
        let topology = self.topology.clone();
        let is_cluster = matches!(topology, Topology::Cluster(_));
        let lines = lines.to_vec();
        Box::pin(async move {
            let run = |lines: &[L]| {
                let options = CallOptions { can_split: lines.len() > 1, ..options };
                run_script(topology.clone(), call(lines), options, decode)
            };
            lines::run(lines, |line| if is_cluster { name(line).slot() } else { 0 }, run).await
        })
    }
}

/// Decodes the reply to a script.
type Decode<T> = fn(Reply) -> Result<StepReply<T>, Failure>;

/// Runs a script and decodes its reply.
fn run_script<T: Send + 'static>(
    topology: Topology,
    call: ScriptCall,
    options: CallOptions,
    decode: impl FnOnce(Reply) -> Result<StepReply<T>, Failure> + Send + 'static,
) -> Step<T> {
    Box::pin(async move { decode(topology.run(&call, options).await?) })
}

/// Decodes the reply to a step that replicas must acknowledge.
///
/// Too few acknowledgements are a failure of a step that took effect on the master.
fn decode_replicated<T>(
    reply: Reply,
    decode: fn(Value) -> Result<T, Value>,
) -> Result<StepReply<T>, Failure> {
    let Reply { value, sent, replicas, shortfall } = reply;
    match shortfall {
        None => {
            let value = decode(value).map_err(|value| unexpected_reply(&value))?;
            Ok(StepReply { value, sent, replicas, notified: None })
        }
        Some(kind) => Err(Failure::unacknowledged(kind, sent)),
    }
}

/// Decodes the outcomes of a batch of renewals.
fn renewed(reply: Reply) -> Result<StepReply<Vec<Option<Renewed>>>, Failure> {
    let Reply { value, sent, replicas, shortfall } = reply;
    let mut value = decode::renewed(value).map_err(|value| unexpected_reply(&value))?;
    if shortfall.is_some() {
        // A lost hold stays lost. A renewed one may be gone if a replica is promoted, so it has no outcome.
        let is_gone = |line: &&mut Option<Renewed>| **line == Some(Renewed::NotHeld);
        value.iter_mut().filter(|line| !is_gone(line)).for_each(|line| *line = None);
    }
    Ok(StepReply { value, sent, replicas, notified: None })
}

/// Decodes the queue positions that a batch of heartbeats returns.
fn heartbeats(Reply { value, sent, .. }: Reply) -> Result<StepReply<Vec<Option<QueuePosition>>>, Failure> {
    Ok(StepReply::new(decode::positions(value).map_err(|value| unexpected_reply(&value))?, sent))
}

/// Fails with a reply that the script never returns.
fn unexpected_reply(value: &Value) -> Failure {
    let text = format!("unexpected reply to a script: {value:?}");
    Failure::refused(FailureKind::Unavailable(Arc::new(io::Error::new(io::ErrorKind::InvalidData, text))))
}

impl Backend for Redis {
    fn acquire(
        &self,
        claim: Claim<'_>,
        options: AcquireOptions,
        step_options: StepOptions,
    ) -> Step<Acquired> {
        let call = match claim.name.kind() {
            Kind::Lock | Kind::Spin | Kind::Fenced => reentrant::acquire(claim, options),
            Kind::Fair => fair::acquire(claim, options),
            Kind::Read | Kind::Write => read_write::acquire(claim, options),
            Kind::Plain => plain::acquire(claim, options),
            Kind::Semaphore => semaphore::acquire(claim, options),
            Kind::Permits => permits::acquire(claim, options),
            Kind::Latch => return unsupported("acquire", claim.name),
        };
        let StepOptions { limit, replicas, caller } = step_options;
        let options = CallOptions::new(limit, replicas, decode::is_grant);
        let call = call.for_caller(caller);
        run_script(self.topology.clone(), call, options, |reply| decode_replicated(reply, decode::acquired))
    }

    fn release(&self, claim: Claim<'_>, limit: Duration) -> Step<Released> {
        let call = match claim.name.kind() {
            Kind::Lock | Kind::Spin | Kind::Fenced => reentrant::release(claim),
            Kind::Fair => fair::release(claim),
            Kind::Read | Kind::Write => read_write::release(claim),
            Kind::Plain => plain::release(claim),
            Kind::Semaphore => semaphore::release(claim),
            Kind::Permits => permits::release(claim),
            Kind::Latch => return unsupported("release", claim.name),
        };
        let options = CallOptions::unreplicated(limit);
        run_script(self.topology.clone(), call, options, |Reply { value, sent, .. }| {
            let notified = decode::receivers(&value);
            let value = decode::released(value).map_err(|value| unexpected_reply(&value))?;
            Ok(StepReply { value, sent, replicas: 0, notified })
        })
    }

    fn renew(&self, lines: &[Renewal], step_options: StepOptions) -> Step<Vec<Option<Renewed>>> {
        let Some(Renewal { name: first, .. }) = lines.first() else { return empty_reply() };
        let call = match first.kind() {
            Kind::Lock | Kind::Spin | Kind::Fenced | Kind::Fair => reentrant::renew,
            Kind::Read | Kind::Write => read_write::renew,
            Kind::Plain => plain::renew,
            Kind::Permits => permits::renew,
            Kind::Semaphore | Kind::Latch => return unsupported("renew", first),
        };
        let options =
            CallOptions::extending_lease(step_options.limit, step_options.replicas, decode::is_any_renewed);
        self.batch(lines, |line| &line.name, call, options, renewed)
    }

    fn unlock_after(&self, claim: Claim<'_>, lease: Lease, step_options: StepOptions) -> Step<Renewed> {
        let call = match claim.name.kind() {
            Kind::Lock | Kind::Spin | Kind::Fenced => reentrant::unlock_after(claim, lease),
            Kind::Fair => fair::unlock_after(claim, lease),
            Kind::Read | Kind::Write => read_write::unlock_after(claim, lease),
            Kind::Plain => plain::unlock_after(claim, lease),
            Kind::Permits => permits::unlock_after(claim, lease),
            Kind::Semaphore | Kind::Latch => return unsupported("unlock_after", claim.name),
        };
        let options =
            CallOptions::extending_lease(step_options.limit, step_options.replicas, decode::is_lease_set);
        run_script(self.topology.clone(), call, options, |reply| decode_replicated(reply, decode::lease_set))
    }

    fn heartbeat(&self, waiters: &[FairWaiter], limit: Duration) -> Step<Vec<Option<QueuePosition>>> {
        if waiters.is_empty() {
            return empty_reply();
        }
        let options = CallOptions::unreplicated(limit);
        self.batch(waiters, |waiter| &waiter.name, fair::heartbeat, options, heartbeats)
    }

    fn force_unlock(&self, name: &LockName, limit: Duration) -> Step<bool> {
        let call = match name.kind() {
            Kind::Lock | Kind::Spin | Kind::Fenced => reentrant::force_unlock(name),
            Kind::Fair => fair::force_unlock(name),
            Kind::Read | Kind::Write => read_write::force_unlock(name),
            Kind::Plain => plain::force_unlock(name),
            Kind::Semaphore | Kind::Permits | Kind::Latch => return unsupported("force_unlock", name),
        };
        self.step(call, limit, |value| decode::number(value).map(|was_held| was_held == 1))
    }

    fn perform(&self, name: &LockName, op: CounterOp, request: &OwnerId, limit: Duration) -> Step<i64> {
        let call = match name.kind() {
            Kind::Semaphore => semaphore::perform(name, op, request),
            Kind::Permits => permits::perform(name, op, request),
            Kind::Latch => latch::perform(name, op, request),
            _ => return unsupported("a counter operation", name),
        };
        self.step(call, limit, decode::number)
    }

    fn forget(&self, name: &LockName, request: &OwnerId, limit: Duration) -> Step<()> {
        self.step(requests::forget(name, request), limit, |value| decode::number(value).map(drop))
    }

    fn inspect(&self, name: &LockName, limit: Duration) -> Step<Snapshot> {
        let call = match name.kind() {
            Kind::Lock | Kind::Spin | Kind::Fenced => reentrant::inspect(name),
            Kind::Fair => fair::inspect(name),
            Kind::Read | Kind::Write => read_write::inspect(name),
            Kind::Plain => plain::inspect(name),
            Kind::Semaphore => semaphore::inspect(name),
            Kind::Permits => permits::inspect(name),
            Kind::Latch => latch::inspect(name),
        };
        let step = self.step(call, limit, decode::snapshot);
        let key = name.key().to_owned();
        Box::pin(async move {
            let StepReply { value, sent, .. } = step.await?;
            match value {
                Ok(value) => Ok(StepReply::new(value, sent)),
                Err(found) => Err(Failure::refused(FailureKind::NotALock { key, found })),
            }
        })
    }

    fn find(&self, search: Search, limit: Duration) -> Step<FoundKeys> {
        let finder = find::Finder::new(self.topology.clone(), search, limit);
        Box::pin(async move { Ok(StepReply::new(finder.run().await?, Sent::never())) })
    }

    fn kind_of(&self, name: &LockName, limit: Duration) -> Step<Option<Kind>> {
        if key_probe::is_auxiliary_key(name.key()) {
            return Box::pin(std::future::ready(Ok(StepReply::new(None, Sent::never()))));
        }
        let name = name.with_kind(Kind::Plain);
        self.step(key_probe::call(&name), limit, |value| {
            KeyProbe::decode(value).map(|probe| probe.possible_kind())
        })
    }

    fn write_client_record(
        &self,
        client: ClientId,
        record: String,
        lasts: Duration,
        limit: Duration,
    ) -> Step<()> {
        let call = client_record::write(&client_record::key(client), &record, lasts);
        self.step(call, limit, |value| decode::number(value).map(drop))
    }

    fn client_records(&self, clients: &[ClientId], limit: Duration) -> Step<Vec<Option<String>>> {
        let keys: Vec<_> = clients.iter().copied().map(client_record::key).collect();
        if keys.is_empty() {
            return empty_reply();
        }
        self.batch(
            &keys,
            |key| key,
            client_record::read,
            CallOptions::unreplicated(limit),
            client_record::decode_records,
        )
    }

    fn subscribe(&self, name: &LockName) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        match &self.topology {
            Topology::One(node) => node.subscriber().subscribe(name),
            Topology::Cluster(cluster) => cluster.subscribe(name),
        }
    }

    fn unsubscribe(&self, name: &LockName) {
        match &self.topology {
            Topology::One(node) => node.subscriber().unsubscribe(name),
            Topology::Cluster(cluster) => cluster.unsubscribe(name),
        }
    }

    fn server_probes(&self) -> ServerProbes<'_> {
        Box::pin(self.topology.server_probes())
    }

    fn about(&self) -> String {
        "No server of this store is known at the moment.".to_owned()
    }

    fn attach(&self, signals: Weak<dyn Signals>) {
        self.topology.attach(signals);
    }
}

/// An empty batch, for which nothing is sent.
fn empty_reply<T: Send + 'static>() -> Step<Vec<T>> {
    Box::pin(std::future::ready(Ok(StepReply::new(Vec::new(), Sent::never()))))
}

/// Fails a step that the kind of the name does not have. Only a bug in this crate gets here.
fn unsupported<T: Send + 'static>(step: &str, name: &LockName) -> Step<T> {
    let cause = io::Error::new(
        io::ErrorKind::Unsupported,
        format!("{step} is not supported for a {}", name.kind().label()),
    );
    Box::pin(std::future::ready(Err(Failure::refused(FailureKind::Unavailable(Arc::new(cause))))))
}
