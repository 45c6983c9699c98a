use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use turnlock_core::model::{AcquireOptions, Claim, CounterOp, Step};
use turnlock_core::{ClientId, Kind, Lease, LockName, OwnerId};
use turnlock_store::{ClientProfile, Failure, FailureKind, ReleaseMessages, StepOptions, Store};

use super::server_facts::ServerProbe;
use crate::acl::Primitive;
use crate::steps;

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
            let outcome = server.send(redis::cmd("DEL").arg(key)).await;
            if let Err(failure @ Failure { kind: FailureKind::Denied(_), .. }) = outcome {
                return Err(failure.to_string());
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

    fn acquire(&self, claim: Claim, waits: bool) -> Step {
        Step::Acquire(claim, AcquireOptions { lease: self.lease, waits, highest_token: 0 })
    }

    /// Performs a counter operation, then lets the store forget its request id.
    fn perform(&self, name: &LockName, op: CounterOp) -> [Step; 2] {
        let request = self.owner(Kind::Lock);
        [Step::Perform(name.clone(), op, request.clone()), Step::Forget(name.clone(), request)]
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
        let (probe, kind) = (self.probe, name.kind());
        let (holder, contender, next) = (probe.owner(kind), probe.owner(kind), probe.owner(kind));
        let hold = |target| Claim::new(name, &holder, target);
        // Readers do not exclude each other, so the contender is a writer.
        let other = if kind == Kind::Read { name.with_kind(Kind::Write) } else { name.clone() };
        let contend = |target| Claim::new(&other, &contender, target);
        let mut steps =
            vec![probe.acquire(hold(1), false), probe.acquire(contend(1), kind.publishes_releases())];
        if kind == Kind::Fair {
            steps.push(Step::Heartbeat(name.clone(), contender.clone()));
        }
        if kind != Kind::Plain {
            steps.extend([probe.acquire(hold(2), false), Step::Release(hold(1))]);
        }
        steps.extend([Step::Renew(hold(1), Some(probe.lease)), Step::Inspect(name.clone())]);
        self.run(steps).await?;
        let channel = if kind == Kind::Fair { name.for_client_of(&contender) } else { name.clone() };
        let notified = self.notifies(&channel, [Step::Release(hold(0))]).await?;
        let regain = probe.acquire(Claim::new(name, &next, 1), false);
        self.run([Step::Release(contend(0)), regain, Step::ForceUnlock(name.clone())]).await?;
        Ok(notified)
    }

    async fn semaphore(&mut self, name: &LockName) -> ProbeOutcome {
        let (probe, kind) = (self.probe, name.kind());
        let (holder, contender) = (probe.owner(kind), probe.owner(kind));
        let hold = |target| Claim::new(name, &holder, target);
        let mut steps = probe.perform(name, CounterOp::SetOnce(1)).to_vec();
        steps.push(probe.acquire(hold(1), false));
        steps.push(probe.acquire(Claim::new(name, &contender, 1), true));
        if kind == Kind::Permits {
            steps.push(Step::Renew(hold(1), Some(probe.lease)));
            steps.extend(probe.perform(name, CounterOp::SetTotal(2)));
        }
        steps.push(Step::Inspect(name.clone()));
        self.run(steps).await?;
        let notified = self.notifies(name, [Step::Release(hold(0))]).await?;
        if kind == Kind::Semaphore {
            self.run([Step::Forget(name.clone(), holder.clone())]).await?;
        }
        self.run(probe.perform(name, CounterOp::Delete)).await?;
        Ok(notified)
    }

    async fn latch(&mut self, name: &LockName) -> ProbeOutcome {
        let perform = |op| self.probe.perform(name, op);
        self.run(perform(CounterOp::SetOnce(2))).await?;
        self.run(perform(CounterOp::CountDown)).await?;
        self.run([Step::Inspect(name.clone())]).await?;
        let notified = self.notifies(name, perform(CounterOp::CountDown)).await?;
        self.run(perform(CounterOp::Delete)).await?;
        Ok(notified)
    }

    /// Runs steps of which one releases. Returns whether the message about it arrives, if its kind has one.
    async fn notifies(&mut self, name: &LockName, steps: impl IntoIterator<Item = Step>) -> ProbeOutcome {
        let has_messages = name.kind().publishes_releases();
        let message =
            if has_messages { Some(self.probe.messages.subscribe(name, MESSAGE_LIMIT).await) } else { None };
        self.run(steps).await?;
        let Some(message) = message else { return Ok(None) };
        Ok(Some(tokio::time::timeout(MESSAGE_LIMIT, message).await.is_ok()))
    }

    async fn run(&mut self, steps: impl IntoIterator<Item = Step>) -> Result<(), FailedStep> {
        let Probe { store, client, .. } = self.probe;
        for step in steps {
            let (label, options) =
                (steps::label(&step), StepOptions::of_engine(client.limit, client.replicas));
            let outcome = if matches!(step, Step::Renew(..) | Step::Heartbeat(..)) {
                let reply = store.call_batch(vec![step], options).await;
                reply.map(|reply| reply.value.iter().all(Option::is_some))
            } else {
                store.call(step, options).await.map(|_| true)
            };
            match outcome {
                Ok(true) => self.is_first = false,
                // One line of a batch failed: on a name without other users, a right is missing then.
                Ok(false) => {
                    let why = "the reply does not name the denied command".to_owned();
                    return Err(self.failed(label, why, true));
                }
                Err(failure) => {
                    let is_denied = matches!(failure.kind, FailureKind::Denied(_));
                    return Err(self.failed(label, failure.to_string(), is_denied));
                }
            }
        }
        Ok(())
    }

    fn failed(&self, step: &'static str, why: String, is_denied: bool) -> FailedStep {
        FailedStep { step, why, is_denied, is_first: self.is_first }
    }
}
