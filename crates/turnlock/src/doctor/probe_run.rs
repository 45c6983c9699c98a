use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use turnlock_core::model::{AcquireOptions, Acquired, Claim, CounterOp, Released};
use turnlock_core::{Kind, LockName, OwnerId};

use super::probe::Probe;
use crate::acl::Primitive;
use crate::backend::{FailureKind, FairWaiter, Renewal, Step, StepOptions, StepReply};
use crate::engine::{Join, Waiter};

/// How soon a message must arrive.
const MESSAGE_LIMIT: Duration = Duration::from_secs(1);

/// Runs the steps of one primitive in order, until one fails.
pub(super) struct ProbeRun {
    probe: Arc<Probe>,
    /// How many steps succeeded.
    done: AtomicU32,
}

/// The step that failed, and why.
pub(super) struct FailedStep {
    pub(super) step: &'static str,
    pub(super) why: String,
    pub(super) is_denied: bool,
}

impl ProbeRun {
    pub(super) fn new(probe: Arc<Probe>) -> Self {
        Self { probe, done: AtomicU32::new(0) }
    }

    /// Returns `true` if no step has succeeded yet.
    pub(super) fn is_at_first_step(&self) -> bool {
        self.done.load(Ordering::Relaxed) == 0
    }

    /// Runs every step of a primitive.
    ///
    /// Returns whether the message about the release arrived; `None` if the primitive sends none.
    pub(super) async fn test(&self, primitive: Primitive, name: &str) -> Result<Option<bool>, FailedStep> {
        let leaves_keys = !matches!(primitive, Primitive::Lock | Primitive::SpinLock | Primitive::PlainLock);
        if leaves_keys {
            for key in self.probe.keys(primitive, name) {
                let deleted = self.probe.delete(&key).await;
                deleted.map_err(|why| FailedStep { step: "delete", why, is_denied: true })?;
            }
        }
        let probe = Arc::clone(&self.probe);
        match primitive {
            Primitive::Lock => self.lock(&probe.name(Kind::Lock, name)?).await,
            Primitive::SpinLock => self.lock(&probe.name(Kind::Spin, name)?).await,
            Primitive::FencedLock => self.lock(&probe.name(Kind::Fenced, name)?).await,
            Primitive::PlainLock => self.lock(&probe.name(Kind::Plain, name)?).await,
            Primitive::FairLock => self.lock(&probe.name(Kind::Fair, name)?).await,
            Primitive::ReadWriteLock => {
                self.lock(&probe.name(Kind::Write, name)?).await?;
                self.lock(&probe.name(Kind::Read, name)?).await
            }
            Primitive::Semaphore => self.semaphore(&probe.name(Kind::Semaphore, name)?).await,
            Primitive::PermitSemaphore => self.semaphore(&probe.name(Kind::Permits, name)?).await,
            Primitive::Latch => self.latch(&probe.name(Kind::Latch, name)?).await,
        }
    }

    async fn lock(&self, name: &LockName) -> Result<Option<bool>, FailedStep> {
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
        self.step("inspect", |limit| self.probe.shared.backend.inspect(name, limit)).await?;
        let subscribed = if kind.publishes_releases() {
            let channel = if kind == Kind::Fair { name.for_waiter(&contender) } else { name.clone() };
            self.subscribe(&channel).await
        } else {
            None
        };
        self.release(Claim::new(name, &holder, 0)).await?;
        let notified = match subscribed {
            Some(waiter) => Some(is_notified(&waiter).await),
            None => None,
        };
        self.release(Claim::new(&other, &contender, 0)).await?;
        let next = self.probe.owner(kind);
        self.acquire(Claim::new(name, &next, 1), false).await?;
        self.step("force unlock", |limit| self.probe.shared.backend.force_unlock(name, limit)).await?;
        Ok(notified)
    }

    async fn semaphore(&self, name: &LockName) -> Result<Option<bool>, FailedStep> {
        let kind = name.kind();
        let (holder, contender) = (self.probe.owner(kind), self.probe.owner(kind));
        self.perform(name, CounterOp::SetOnce(1)).await?;
        self.acquire(Claim::new(name, &holder, 1), false).await?;
        self.acquire(Claim::new(name, &contender, 1), true).await?;
        if kind == Kind::Permits {
            self.renew(name, &holder).await?;
            self.perform(name, CounterOp::SetTotal(2)).await?;
        }
        self.step("inspect", |limit| self.probe.shared.backend.inspect(name, limit)).await?;
        let subscribed = self.subscribe(name).await;
        self.release(Claim::new(name, &holder, 0)).await?;
        let notified = match subscribed {
            Some(waiter) => is_notified(&waiter).await,
            None => false,
        };
        if kind == Kind::Semaphore {
            self.forget(name, &holder).await?;
        }
        self.perform(name, CounterOp::Delete).await?;
        Ok(Some(notified))
    }

    async fn latch(&self, name: &LockName) -> Result<Option<bool>, FailedStep> {
        self.perform(name, CounterOp::SetOnce(2)).await?;
        self.perform(name, CounterOp::CountDown).await?;
        self.step("inspect", |limit| self.probe.shared.backend.inspect(name, limit)).await?;
        let subscribed = self.subscribe(name).await;
        self.perform(name, CounterOp::CountDown).await?;
        let notified = match subscribed {
            Some(waiter) => is_notified(&waiter).await,
            None => false,
        };
        self.perform(name, CounterOp::Delete).await?;
        Ok(Some(notified))
    }

    fn step_options(&self, limit: Duration) -> StepOptions {
        StepOptions::of_engine(limit, self.probe.shared.settings.replicas)
    }

    async fn acquire(&self, claim: Claim<'_>, waits: bool) -> Result<Acquired, FailedStep> {
        let options = AcquireOptions { lease: self.probe.lease, waits, highest_token: 0 };
        self.step("acquire", |limit| {
            self.probe.shared.backend.acquire(claim, options, self.step_options(limit))
        })
        .await
    }

    async fn release(&self, claim: Claim<'_>) -> Result<Released, FailedStep> {
        self.step("release", |limit| self.probe.shared.backend.release(claim, limit)).await
    }

    async fn renew(&self, name: &LockName, owner: &OwnerId) -> Result<(), FailedStep> {
        let renewal =
            Renewal { name: name.clone(), owner: owner.clone(), permits: 1, lease: Some(self.probe.lease) };
        let step = "renew";
        let outcomes = self
            .step(step, |limit| self.probe.shared.backend.renew(&[renewal], self.step_options(limit)))
            .await?;
        check_batch(step, &outcomes)
    }

    async fn heartbeat(&self, name: &LockName, owner: &OwnerId) -> Result<(), FailedStep> {
        let waiter = FairWaiter { name: name.clone(), owner: owner.clone() };
        let step = "heartbeat of a waiter";
        let outcomes = self.step(step, |limit| self.probe.shared.backend.heartbeat(&[waiter], limit)).await?;
        check_batch(step, &outcomes)
    }

    /// Performs a counter operation, then lets the store forget its request id.
    async fn perform(&self, name: &LockName, op: CounterOp) -> Result<(), FailedStep> {
        let request = self.probe.shared.new_owner();
        let step = match op {
            CounterOp::SetOnce(_) => "set the count",
            CounterOp::CountDown => "count down",
            CounterOp::Delete => "delete",
            _ => "change the count",
        };
        self.step(step, |limit| self.probe.shared.backend.perform(name, op, &request, limit)).await?;
        self.forget(name, &request).await
    }

    async fn forget(&self, name: &LockName, request: &OwnerId) -> Result<(), FailedStep> {
        self.step("forget a request id", |limit| self.probe.shared.backend.forget(name, request, limit)).await
    }

    /// Subscribes to the messages about releases of a name.
    async fn subscribe(&self, name: &LockName) -> Option<Waiter> {
        let shared = &self.probe.shared;
        let (waiter, _) = shared.wait_queues.enter(name, Join::AtEnd);
        waiter.set_subscribed();
        let _ = tokio::time::timeout(MESSAGE_LIMIT, shared.backend.subscribe(name)).await;
        // Discards a wake-up from before the release under test.
        let _ = waiter.wakeup.notified().now_or_never();
        Some(waiter)
    }

    async fn step<T>(
        &self,
        step: &'static str,
        send: impl FnOnce(Duration) -> Step<T>,
    ) -> Result<T, FailedStep> {
        match send(self.probe.limit).await {
            Ok(StepReply { value, .. }) => {
                self.done.fetch_add(1, Ordering::Relaxed);
                Ok(value)
            }
            Err(failure) => {
                let is_denied = matches!(failure.kind, FailureKind::Denied(_));
                Err(FailedStep { step, is_denied, why: failure.to_string() })
            }
        }
    }
}

/// Waits for a message. Returns `true` if one arrives in time.
async fn is_notified(waiter: &Waiter) -> bool {
    tokio::time::timeout(MESSAGE_LIMIT, waiter.wakeup.notified()).await.is_ok()
}

/// Fails if an item of a batch failed. The reply has no reason; on a name without other users it is a missing
/// right.
fn check_batch<T>(step: &'static str, outcomes: &[Option<T>]) -> Result<(), FailedStep> {
    if outcomes.iter().all(Option::is_some) {
        return Ok(());
    }
    let why = "the reply does not name the denied command".to_owned();
    Err(FailedStep { step, why, is_denied: true })
}
