use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use turnlock_core::model::{AcquireOptions, Acquired, Claim, CounterOp, Released};
use turnlock_core::{ClientId, Kind, Lease, LockName, OwnerId};
use turnlock_store::{
    ClientProfile, Failure, FailureKind, FairWaiter, ReleaseMessages, Renewal, StepOptions, StepReply, Store,
};

use super::server_probe::{ProbeError, ServerProbe};
use crate::acl::Primitive;

/// The shortest lease of a test lock. It is released at once; if that is denied, its lease ends soon.
const LEASE: Duration = Duration::from_secs(5);

/// How soon a message must arrive.
const MESSAGE_LIMIT: Duration = Duration::from_secs(1);

/// Tests every primitive on names of its own, and deletes what it wrote.
pub(super) struct Probe<'a> {
    store: &'a dyn Store,
    servers: &'a [ServerProbe],
    client: &'a ClientProfile,
    messages: &'a dyn ReleaseMessages,
    lease: Lease,
    /// The client of the owners, which no other owner has.
    owners: ClientId,
    next_owner: AtomicU64,
}

/// The outcome of probing one primitive.
///
/// If all steps succeeded: whether the message about the release arrived; `None` if the primitive has none.
pub(super) type ProbeOutcome = Result<Option<bool>, FailedStep>;

/// The step that failed, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FailedStep {
    pub(super) step: &'static str,
    pub(super) why: String,
    /// The user lacks the right to the step.
    pub(super) is_denied: bool,
    /// No step succeeded before. If it is denied, the user cannot use the primitive at all.
    pub(super) is_first: bool,
}

impl<'a> Probe<'a> {
    pub(super) fn new(
        store: &'a dyn Store,
        servers: &'a [ServerProbe],
        client: &'a ClientProfile,
        messages: &'a dyn ReleaseMessages,
    ) -> Self {
        let lease = Lease::new(LEASE.max(client.limit * 4)).unwrap_or(Lease::WATCHDOG);
        let owners = ClientId::from_random(uuid::Uuid::new_v4().into_bytes());
        Self { store, servers, client, messages, lease, owners, next_owner: AtomicU64::new(1) }
    }

    pub(super) async fn run(&self) -> Vec<(Primitive, ProbeOutcome)> {
        join_all(Primitive::ALL.map(async |primitive| (primitive, self.test(primitive).await))).await
    }

    async fn test(&self, primitive: Primitive) -> ProbeOutcome {
        let name = format!(
            "{}{}:{}",
            self.client.name_prefix.as_deref().unwrap_or("turnlock_doctor:"),
            uuid::Uuid::new_v4().simple(),
            primitive.noun().replace(' ', "-")
        );
        let outcome = ProbeRun { probe: self, is_first: true }.test(primitive, &name).await;
        // A token outlives its lock, and a denied step leaves the keys of the steps before it.
        for key in self.keys(primitive, &name) {
            let _ = self.delete(&key).await;
        }
        outcome
    }

    /// The keys that a primitive can leave behind, without those whose names are patterns.
    fn keys(&self, primitive: Primitive, name: &str) -> impl Iterator<Item = String> + use<> {
        let keys = primitive.keys(&format!("{}{name}", self.client.key_prefix));
        keys.into_iter().filter(|key| !key.contains('*'))
    }

    /// Deletes a key on the server that has it. Fails only if that is denied.
    async fn delete(&self, key: &str) -> Result<(), String> {
        for server in self.servers {
            if let Err(ProbeError::Denied(why)) = server.send(redis::cmd("DEL").arg(key)).await {
                return Err(why);
            }
        }
        Ok(())
    }

    /// Creates an owner in the format of the kind.
    fn owner(&self, kind: Kind) -> OwnerId {
        match kind {
            Kind::Permits => OwnerId::from_wire(&uuid::Uuid::new_v4().simple().to_string()),
            _ => self.owners.owner(self.next_owner.fetch_add(1, Ordering::Relaxed)),
        }
    }
}

/// Runs the steps of one primitive in order, until one fails.
struct ProbeRun<'a> {
    probe: &'a Probe<'a>,
    /// No step has succeeded yet.
    is_first: bool,
}

impl ProbeRun<'_> {
    async fn test(&mut self, primitive: Primitive, name: &str) -> ProbeOutcome {
        let leaves_keys = !matches!(primitive, Primitive::Lock | Primitive::SpinLock | Primitive::PlainLock);
        if leaves_keys {
            for key in self.probe.keys(primitive, name) {
                self.probe.delete(&key).await.map_err(|why| self.failed("delete", why, true))?;
            }
        }
        let name = LockName::of(primitive.kind(), &self.probe.client.key_prefix, name)
            .map_err(|error| self.failed("parsing the name", error.to_string(), false))?;
        match primitive {
            Primitive::ReadWriteLock => {
                self.lock(&name).await?;
                self.lock(&name.with_kind(Kind::Read)).await
            }
            Primitive::Semaphore | Primitive::PermitSemaphore => self.semaphore(&name).await,
            Primitive::Latch => self.latch(&name).await,
            _ => self.lock(&name).await,
        }
    }

    async fn lock(&mut self, name: &LockName) -> ProbeOutcome {
        let kind = name.kind();
        let (holder, contender) = (self.probe.owner(kind), self.probe.owner(kind));
        // Readers do not exclude each other, so the contender is a writer.
        let other = if kind == Kind::Read { name.with_kind(Kind::Write) } else { name.clone() };
        self.acquire(Claim::new(name, &holder, 1), false).await?;
        self.acquire(Claim::new(&other, &contender, 1), kind.publishes_releases()).await?;
        if kind == Kind::Fair {
            self.heartbeat(name, &contender).await?;
        }
        if kind != Kind::Plain {
            self.acquire(Claim::new(name, &holder, 2), false).await?;
            self.release(Claim::new(name, &holder, 1)).await?;
        }
        self.renew(name, &holder).await?;
        self.inspect(name).await?;
        let channel = if kind == Kind::Fair { name.for_waiter(&contender) } else { name.clone() };
        let message = self.subscribe(&channel).await;
        self.release(Claim::new(name, &holder, 0)).await?;
        let notified = has_arrived(message).await;
        self.release(Claim::new(&other, &contender, 0)).await?;
        let next = self.probe.owner(kind);
        self.acquire(Claim::new(name, &next, 1), false).await?;
        self.step("force unlock", self.probe.store.force_unlock(name, self.probe.client.limit)).await?;
        Ok(notified)
    }

    async fn semaphore(&mut self, name: &LockName) -> ProbeOutcome {
        let kind = name.kind();
        let (holder, contender) = (self.probe.owner(kind), self.probe.owner(kind));
        self.perform(name, CounterOp::SetOnce(1)).await?;
        self.acquire(Claim::new(name, &holder, 1), false).await?;
        self.acquire(Claim::new(name, &contender, 1), true).await?;
        if kind == Kind::Permits {
            self.renew(name, &holder).await?;
            self.perform(name, CounterOp::SetTotal(2)).await?;
        }
        self.inspect(name).await?;
        let message = self.subscribe(name).await;
        self.release(Claim::new(name, &holder, 0)).await?;
        let notified = has_arrived(message).await;
        if kind == Kind::Semaphore {
            self.forget(name, &holder).await?;
        }
        self.perform(name, CounterOp::Delete).await?;
        Ok(notified)
    }

    async fn latch(&mut self, name: &LockName) -> ProbeOutcome {
        self.perform(name, CounterOp::SetOnce(2)).await?;
        self.perform(name, CounterOp::CountDown).await?;
        self.inspect(name).await?;
        let message = self.subscribe(name).await;
        self.perform(name, CounterOp::CountDown).await?;
        let notified = has_arrived(message).await;
        self.perform(name, CounterOp::Delete).await?;
        Ok(notified)
    }

    async fn acquire(&mut self, claim: Claim, waits: bool) -> Result<Acquired, FailedStep> {
        let options = AcquireOptions { lease: self.probe.lease, waits, highest_token: 0 };
        self.step("acquire", self.probe.store.acquire(claim, options, self.step_options())).await
    }

    async fn release(&mut self, claim: Claim) -> Result<Released, FailedStep> {
        self.step("release", self.probe.store.release(claim, self.probe.client.limit)).await
    }

    async fn renew(&mut self, name: &LockName, owner: &OwnerId) -> Result<(), FailedStep> {
        let (name, owner, lease) = (name.clone(), owner.clone(), Some(self.probe.lease));
        let renewal = Renewal { name, owner, permits: 1, lease };
        self.batch("renew", self.probe.store.renew(&[renewal], self.step_options())).await
    }

    async fn heartbeat(&mut self, name: &LockName, owner: &OwnerId) -> Result<(), FailedStep> {
        let waiter = FairWaiter { name: name.clone(), owner: owner.clone() };
        let heartbeat = self.probe.store.heartbeat(&[waiter], self.probe.client.limit);
        self.batch("heartbeat of a waiter", heartbeat).await
    }

    async fn inspect(&mut self, name: &LockName) -> Result<(), FailedStep> {
        self.step("inspect", self.probe.store.inspect(name, self.probe.client.limit)).await.map(drop)
    }

    /// Performs a counter operation, then lets the store forget its request id.
    async fn perform(&mut self, name: &LockName, op: CounterOp) -> Result<(), FailedStep> {
        let request = self.probe.owner(Kind::Lock);
        let step = match op {
            CounterOp::SetOnce(_) => "set the count",
            CounterOp::CountDown => "count down",
            CounterOp::Delete => "delete",
            _ => "change the count",
        };
        self.step(step, self.probe.store.perform(name, op, &request, self.probe.client.limit)).await?;
        self.forget(name, &request).await
    }

    async fn forget(&mut self, name: &LockName, request: &OwnerId) -> Result<(), FailedStep> {
        let forget = self.probe.store.forget(name, request, self.probe.client.limit);
        self.step("forget a request id", forget).await
    }

    /// Subscribes to the messages about releases of a name, if its kind has them.
    async fn subscribe(&self, name: &LockName) -> Option<BoxFuture<'static, ()>> {
        let publishes = name.kind().publishes_releases();
        if publishes { Some(self.probe.messages.subscribe(name, MESSAGE_LIMIT).await) } else { None }
    }

    fn step_options(&self) -> StepOptions {
        StepOptions::of_engine(self.probe.client.limit, self.probe.client.replicas)
    }

    async fn step<T>(
        &mut self,
        step: &'static str,
        call: impl Future<Output = Result<StepReply<T>, Failure>>,
    ) -> Result<T, FailedStep> {
        match call.await {
            Ok(StepReply { value, .. }) => {
                self.is_first = false;
                Ok(value)
            }
            Err(failure) => {
                let is_denied = matches!(failure.kind, FailureKind::Denied(_));
                Err(self.failed(step, failure.to_string(), is_denied))
            }
        }
    }

    /// Runs a batch. Fails if an item of it failed: on a name without other users, a right is missing then.
    async fn batch<T>(
        &mut self,
        step: &'static str,
        call: impl Future<Output = Result<StepReply<Vec<Option<T>>>, Failure>>,
    ) -> Result<(), FailedStep> {
        if self.step(step, call).await?.iter().all(Option::is_some) {
            return Ok(());
        }
        Err(self.failed(step, "the reply does not name the denied command".to_owned(), true))
    }

    fn failed(&self, step: &'static str, why: String, is_denied: bool) -> FailedStep {
        FailedStep { step, why, is_denied, is_first: self.is_first }
    }
}

/// Waits for a message. Returns `true` if it arrives in time.
async fn has_arrived(message: Option<BoxFuture<'static, ()>>) -> Option<bool> {
    Some(tokio::time::timeout(MESSAGE_LIMIT, message?).await.is_ok())
}
