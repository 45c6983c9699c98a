//! Redis, in whatever shape: a request becomes a script with keys and arguments, its reply a typed answer.

mod access;
mod address;
#[cfg(feature = "tls")]
mod any_server;
mod arrival;
mod batches;
mod cluster;
mod common;
mod convoy;
mod decode;
mod examined;
mod failure;
mod fair;
mod find;
mod first_answer;
mod inlet;
mod introduction;
mod key_look;
mod lane;
mod lanes;
mod latch;
mod link;
mod listener;
mod node;
mod permits;
mod place;
mod plain;
mod read_write;
mod reentrant;
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
#[cfg(test)]
mod tests;
#[cfg(feature = "tls")]
mod tls_dialler;
#[cfg(not(feature = "tls"))]
#[path = "no_tls_dialler.rs"]
mod tls_dialler;
#[cfg(feature = "tls")]
mod tls_trouble;
mod topology;
mod trip;

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::Value;
use turnlock_core::model::{Acquired, Claim, Deed, Place, Released, Renewed, Snapshot, Wish};
use turnlock_core::{ClientId, Kind, Lease, LockName, OwnerId};

pub(crate) use access::Access;
pub(crate) use address::Address;
pub(crate) use secret::Secret;
pub use shape::ClusterMessages;
pub(crate) use shape::{Shape, Target};
pub(crate) use tls_dialler::TlsDialler;

use super::{
    Answer, Backend, Care, Examinees, Failure, FailureKind, Renewal, Search, Sent, Sightings, Signals, Step,
    Waiter,
};
use arrival::{Arrival, Delivery};
use key_look::KeyLook;
use script_call::ScriptCall;
use topology::Topology;

/// Locks on Redis, whatever its shape.
#[derive(Debug)]
pub(crate) struct Redis {
    topology: Topology,
}

impl Redis {
    /// Connects. Must be called on the runtime that is to drive the connections.
    pub(crate) async fn connect(target: Target) -> Result<Self, Failure> {
        Ok(Self { topology: Topology::connect(target).await? })
    }

    /// One step that asks no replicas.
    fn step<T: Send + 'static>(
        &self,
        call: ScriptCall,
        limit: Duration,
        decode: impl FnOnce(Value) -> Result<T, Value> + Send + 'static,
    ) -> Step<T> {
        deliver(self.topology.clone(), call, Delivery::plain(limit), |Arrival { value, sent, .. }| {
            Ok(Answer::new(decode(value).map_err(|value| strange(&value))?, sent))
        })
    }

    /// One request for many lines, each of which has an outcome of its own; in a cluster, one for each slot.
    fn batch<L: Clone + Send + Sync + 'static, T: Send + 'static>(
        &self,
        lines: &[L],
        name: fn(&L) -> &LockName,
        call: fn(&[L]) -> ScriptCall,
        delivery: Delivery,
        finish: Finish<Vec<Option<T>>>,
    ) -> Step<Vec<Option<T>>> {
        let topology = self.topology.clone();
        let is_cluster = matches!(topology, Topology::Cluster(_));
        let lines = lines.to_vec();
        Box::pin(async move {
            let run = |lines: &[L]| {
                let delivery = Delivery { is_divisible: lines.len() > 1, ..delivery };
                deliver(topology.clone(), call(lines), delivery, finish)
            };
            batches::run(lines, |line| if is_cluster { name(line).slot() } else { 0 }, run).await
        })
    }
}

/// Makes what is wanted of what came of a script.
type Finish<T> = fn(Arrival) -> Result<Answer<T>, Failure>;

/// Runs a script, and makes what is wanted of what came of it.
fn deliver<T: Send + 'static>(
    topology: Topology,
    call: ScriptCall,
    delivery: Delivery,
    finish: impl FnOnce(Arrival) -> Result<Answer<T>, Failure> + Send + 'static,
) -> Step<T> {
    Box::pin(async move { finish(topology.run(&call, delivery).await?) })
}

/// What one hold was given. Where too few replicas have acknowledged it, that is a failure, and stands.
fn given<T>(arrival: Arrival, decode: fn(Value) -> Result<T, Value>) -> Result<Answer<T>, Failure> {
    let Arrival { value, sent, replicas, shortfall } = arrival;
    match shortfall {
        None => {
            let value = decode(value).map_err(|value| strange(&value))?;
            Ok(Answer { value, sent, replicas, told: None })
        }
        Some(kind) => Err(Failure::of_standing(kind, sent)),
    }
}

fn renewed(arrival: Arrival) -> Result<Answer<Vec<Option<Renewed>>>, Failure> {
    let Arrival { value, sent, replicas, shortfall } = arrival;
    let mut value = decode::renewed(value).map_err(|value| strange(&value))?;
    if shortfall.is_some() {
        // What is gone is gone; what was renewed may be gone when another is promoted.
        let is_gone = |line: &&mut Option<Renewed>| **line == Some(Renewed::NotHeld);
        value.iter_mut().filter(|line| !is_gone(line)).for_each(|line| *line = None);
    }
    Ok(Answer { value, sent, replicas, told: None })
}

fn attended(Arrival { value, sent, .. }: Arrival) -> Result<Answer<Vec<Option<Place>>>, Failure> {
    Ok(Answer::new(decode::places(value).map_err(|value| strange(&value))?, sent))
}

/// An answer that no script gives.
fn strange(value: &Value) -> Failure {
    let text = format!("the server answered a script with {value:?}");
    Failure::refused(FailureKind::Unavailable(Arc::new(io::Error::new(io::ErrorKind::InvalidData, text))))
}

impl Backend for Redis {
    fn acquire(&self, claim: Claim<'_>, wish: Wish, care: Care) -> Step<Acquired> {
        let call = match claim.name.kind() {
            Kind::Lock | Kind::Spin | Kind::Fenced => reentrant::acquire(claim, wish),
            Kind::Fair => fair::acquire(claim, wish),
            Kind::Read | Kind::Write => read_write::acquire(claim, wish),
            Kind::Plain => plain::acquire(claim, wish),
            Kind::Semaphore => semaphore::acquire(claim, wish),
            Kind::Permits => permits::acquire(claim, wish),
            Kind::Latch => return never("acquire", claim.name),
        };
        let Care { limit, replicas, caller } = care;
        let delivery = Delivery::new(limit, replicas, decode::is_grant);
        let call = call.asked_by(caller);
        deliver(self.topology.clone(), call, delivery, |arrival| given(arrival, decode::acquired))
    }

    fn release(&self, claim: Claim<'_>, limit: Duration) -> Step<Released> {
        let call = match claim.name.kind() {
            Kind::Lock | Kind::Spin | Kind::Fenced => reentrant::release(claim),
            Kind::Fair => fair::release(claim),
            Kind::Read | Kind::Write => read_write::release(claim),
            Kind::Plain => plain::release(claim),
            Kind::Semaphore => semaphore::release(claim),
            Kind::Permits => permits::release(claim),
            Kind::Latch => return never("release", claim.name),
        };
        deliver(self.topology.clone(), call, Delivery::plain(limit), |Arrival { value, sent, .. }| {
            let told = decode::told(&value);
            let value = decode::released(value).map_err(|value| strange(&value))?;
            Ok(Answer { value, sent, replicas: 0, told })
        })
    }

    fn renew(&self, lines: &[Renewal], care: Care) -> Step<Vec<Option<Renewed>>> {
        let Some(Renewal { name: first, .. }) = lines.first() else { return nothing_to_do() };
        let call = match first.kind() {
            Kind::Lock | Kind::Spin | Kind::Fenced | Kind::Fair => reentrant::renew,
            Kind::Read | Kind::Write => read_write::renew,
            Kind::Plain => plain::renew,
            Kind::Permits => permits::renew,
            Kind::Semaphore | Kind::Latch => return never("renew", first),
        };
        let delivery = Delivery::prolonging(care.limit, care.replicas, decode::is_any_renewed);
        self.batch(lines, |line| &line.name, call, delivery, renewed)
    }

    fn keep(&self, claim: Claim<'_>, lease: Lease, care: Care) -> Step<Renewed> {
        let call = match claim.name.kind() {
            Kind::Lock | Kind::Spin | Kind::Fenced => reentrant::keep(claim, lease),
            Kind::Fair => fair::keep(claim, lease),
            Kind::Read | Kind::Write => read_write::keep(claim, lease),
            Kind::Plain => plain::keep(claim, lease),
            Kind::Permits => permits::keep(claim, lease),
            Kind::Semaphore | Kind::Latch => return never("keep", claim.name),
        };
        let delivery = Delivery::prolonging(care.limit, care.replicas, decode::is_kept);
        deliver(self.topology.clone(), call, delivery, |arrival| given(arrival, decode::kept))
    }

    fn attend(&self, waiters: &[Waiter], limit: Duration) -> Step<Vec<Option<Place>>> {
        if waiters.is_empty() {
            return nothing_to_do();
        }
        self.batch(waiters, |waiter| &waiter.name, fair::attend, Delivery::plain(limit), attended)
    }

    fn force_unlock(&self, name: &LockName, limit: Duration) -> Step<bool> {
        let call = match name.kind() {
            Kind::Lock | Kind::Spin | Kind::Fenced => reentrant::force_unlock(name),
            Kind::Fair => fair::force_unlock(name),
            Kind::Read | Kind::Write => read_write::force_unlock(name),
            Kind::Plain => plain::force_unlock(name),
            Kind::Semaphore | Kind::Permits | Kind::Latch => return never("unlock by force", name),
        };
        self.step(call, limit, |value| decode::number(value).map(|was_held| was_held == 1))
    }

    fn perform(&self, name: &LockName, deed: Deed, request: &OwnerId, limit: Duration) -> Step<i64> {
        let call = match name.kind() {
            Kind::Semaphore => semaphore::perform(name, deed, request),
            Kind::Permits => permits::perform(name, deed, request),
            Kind::Latch => latch::perform(name, deed, request),
            _ => return never("count on", name),
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
        let step = self.step(call, limit, decode::picture);
        let key = name.key().to_owned();
        Box::pin(async move {
            let Answer { value, sent, .. } = step.await?;
            match value {
                Ok(value) => Ok(Answer::new(value, sent)),
                Err(found) => Err(Failure::refused(FailureKind::Corrupt { key, found })),
            }
        })
    }

    fn find(&self, search: Search, limit: Duration) -> Step<Sightings> {
        let finder = find::Finder::new(self.topology.clone(), search, limit);
        Box::pin(async move { Ok(Answer::new(finder.run().await?, Sent::never())) })
    }

    fn kind_of(&self, name: &LockName, limit: Duration) -> Step<Option<Kind>> {
        if key_look::is_of_another(name.key()) {
            return Box::pin(std::future::ready(Ok(Answer::new(None, Sent::never()))));
        }
        let name = name.of_other_kind(Kind::Plain);
        self.step(key_look::look(&name), limit, |value| KeyLook::decode(value).map(|look| look.may_be()))
    }

    fn introduce(&self, client: ClientId, record: String, lasts: Duration, limit: Duration) -> Step<()> {
        let call = introduction::introduce(&introduction::key(client), &record, lasts);
        self.step(call, limit, |value| decode::number(value).map(drop))
    }

    fn introductions(&self, clients: &[ClientId], limit: Duration) -> Step<Vec<Option<String>>> {
        let keys: Vec<_> = clients.iter().copied().map(introduction::key).collect();
        if keys.is_empty() {
            return nothing_to_do();
        }
        self.batch(&keys, |key| key, introduction::read, Delivery::plain(limit), introduction::was_read)
    }

    fn listen(&self, name: &LockName) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        match &self.topology {
            Topology::One(node) => node.subscriber().listen(name),
            Topology::Cluster(cluster) => cluster.listen(name),
        }
    }

    fn unlisten(&self, name: &LockName) {
        match &self.topology {
            Topology::One(node) => node.subscriber().unlisten(name),
            Topology::Cluster(cluster) => cluster.unlisten(name),
        }
    }

    fn examinees(&self) -> Examinees<'_> {
        Box::pin(self.topology.examinees())
    }

    fn about(&self) -> String {
        "The store is made of servers, of which none is known just now.".to_owned()
    }

    fn attach(&self, signals: Weak<dyn Signals>) {
        self.topology.attach(signals);
    }
}

fn nothing_to_do<T: Send + 'static>() -> Step<Vec<T>> {
    Box::pin(std::future::ready(Ok(Answer::new(Vec::new(), Sent::never()))))
}

/// A step that this kind of thing does not have: a fault in this crate, told rather than sent.
fn never<T: Send + 'static>(what: &str, name: &LockName) -> Step<T> {
    let cause = io::Error::new(io::ErrorKind::Unsupported, format!("cannot {what} a {}", name.kind().noun()));
    Box::pin(std::future::ready(Err(Failure::refused(FailureKind::Unavailable(Arc::new(cause))))))
}
