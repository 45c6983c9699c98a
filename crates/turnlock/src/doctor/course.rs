use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use turnlock_core::model::{Acquired, Claim, Deed, Released, Wish};
use turnlock_core::{Kind, LockName, OwnerId};

use super::probe::Probe;
use crate::acl::Primitive;
use crate::backend::{Answer, Care, FailureKind, Renewal, Step, Waiter};
use crate::engine::{Join, Seat};

/// How soon a message must come.
const PROMPT: Duration = Duration::from_secs(1);

/// The steps of one primitive, one after the other, until one fails.
pub(super) struct Course {
    probe: Arc<Probe>,
    /// How many steps were done.
    done: AtomicU32,
}

/// Why a primitive was not tried to its end.
pub(super) struct Halt {
    pub(super) step: &'static str,
    pub(super) why: String,
    pub(super) is_denied: bool,
}

impl Course {
    pub(super) fn new(probe: Arc<Probe>) -> Self {
        Self { probe, done: AtomicU32::new(0) }
    }

    /// Whether no step was done yet.
    pub(super) fn has_just_begun(&self) -> bool {
        self.done.load(Ordering::Relaxed) == 0
    }

    /// Every step of a primitive. Whether its end was heard of, where it is told.
    pub(super) async fn go_through(&self, primitive: Primitive, name: &str) -> Result<Option<bool>, Halt> {
        let leaves_keys = !matches!(primitive, Primitive::Lock | Primitive::SpinLock | Primitive::PlainLock);
        if leaves_keys {
            for key in self.probe.keys(primitive, name) {
                let deleted = self.probe.delete(&key).await;
                deleted.map_err(|why| Halt { step: "to delete", why, is_denied: true })?;
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

    async fn lock(&self, name: &LockName) -> Result<Option<bool>, Halt> {
        let kind = name.kind();
        let (one, two) = (self.probe.owner(kind), self.probe.owner(kind));
        // Readers go together, so a writer has to be in their way.
        let other = if kind == Kind::Read { name.of_other_kind(Kind::Write) } else { name.clone() };
        self.acquire(Claim::new(name, &one, 1), false).await?;
        self.acquire(Claim::new(&other, &two, 1), kind.is_told()).await?;
        if kind == Kind::Fair {
            self.attend(name, &two).await?;
        }
        if kind != Kind::Plain {
            self.acquire(Claim::new(name, &one, 2), false).await?;
            self.release(Claim::new(name, &one, 1)).await?;
        }
        self.renew(name, &one).await?;
        self.step("to look at it", |limit| self.probe.shared.backend.inspect(name, limit)).await?;
        let ear = if kind.is_told() {
            let channel = if kind == Kind::Fair { name.for_waiter(&two) } else { name.clone() };
            self.listen(&channel).await
        } else {
            None
        };
        self.release(Claim::new(name, &one, 0)).await?;
        let heard = match ear {
            Some(ear) => Some(hears(&ear).await),
            None => None,
        };
        self.release(Claim::new(&other, &two, 0)).await?;
        let three = self.probe.owner(kind);
        self.acquire(Claim::new(name, &three, 1), false).await?;
        self.step("to unlock it by force", |limit| self.probe.shared.backend.force_unlock(name, limit))
            .await?;
        Ok(heard)
    }

    async fn semaphore(&self, name: &LockName) -> Result<Option<bool>, Halt> {
        let kind = name.kind();
        let (one, two) = (self.probe.owner(kind), self.probe.owner(kind));
        self.perform(name, Deed::SetOnce(1)).await?;
        self.acquire(Claim::new(name, &one, 1), false).await?;
        self.acquire(Claim::new(name, &two, 1), true).await?;
        if kind == Kind::Permits {
            self.renew(name, &one).await?;
            self.perform(name, Deed::SetTotal(2)).await?;
        }
        self.step("to look at it", |limit| self.probe.shared.backend.inspect(name, limit)).await?;
        let ear = self.listen(name).await;
        self.release(Claim::new(name, &one, 0)).await?;
        let heard = match ear {
            Some(ear) => hears(&ear).await,
            None => false,
        };
        if kind == Kind::Semaphore {
            self.forget(name, &one).await?;
        }
        self.perform(name, Deed::Delete).await?;
        Ok(Some(heard))
    }

    async fn latch(&self, name: &LockName) -> Result<Option<bool>, Halt> {
        self.perform(name, Deed::SetOnce(2)).await?;
        self.perform(name, Deed::CountDown).await?;
        self.step("to look at it", |limit| self.probe.shared.backend.inspect(name, limit)).await?;
        let ear = self.listen(name).await;
        self.perform(name, Deed::CountDown).await?;
        let heard = match ear {
            Some(ear) => hears(&ear).await,
            None => false,
        };
        self.perform(name, Deed::Delete).await?;
        Ok(Some(heard))
    }

    fn care(&self, limit: Duration) -> Care {
        Care::of_engine(limit, self.probe.shared.settings.replicas)
    }

    async fn acquire(&self, claim: Claim<'_>, waits: bool) -> Result<Acquired, Halt> {
        let wish = Wish { lease: self.probe.lease, waits, highest_token: 0 };
        self.step("to take it", |limit| self.probe.shared.backend.acquire(claim, wish, self.care(limit)))
            .await
    }

    async fn release(&self, claim: Claim<'_>) -> Result<Released, Halt> {
        self.step("to give it back", |limit| self.probe.shared.backend.release(claim, limit)).await
    }

    async fn renew(&self, name: &LockName, owner: &OwnerId) -> Result<(), Halt> {
        let line =
            Renewal { name: name.clone(), owner: owner.clone(), permits: 1, lease: Some(self.probe.lease) };
        let step = "to renew it";
        let outcomes =
            self.step(step, |limit| self.probe.shared.backend.renew(&[line], self.care(limit))).await?;
        whole(step, &outcomes)
    }

    async fn attend(&self, name: &LockName, owner: &OwnerId) -> Result<(), Halt> {
        let waiter = Waiter { name: name.clone(), owner: owner.clone() };
        let step = "to wait for it";
        let outcomes = self.step(step, |limit| self.probe.shared.backend.attend(&[waiter], limit)).await?;
        whole(step, &outcomes)
    }

    /// A step on a number, and that the store forgets it.
    async fn perform(&self, name: &LockName, deed: Deed) -> Result<(), Halt> {
        let request = self.probe.shared.new_owner();
        let what = match deed {
            Deed::SetOnce(_) => "to set its number",
            Deed::CountDown => "to count down",
            Deed::Delete => "to remove it",
            _ => "to change its number",
        };
        self.step(what, |limit| self.probe.shared.backend.perform(name, deed, &request, limit)).await?;
        self.forget(name, &request).await
    }

    async fn forget(&self, name: &LockName, request: &OwnerId) -> Result<(), Halt> {
        self.step("to forget a request", |limit| self.probe.shared.backend.forget(name, request, limit)).await
    }

    /// Begins to listen for the end of a hold.
    async fn listen(&self, name: &LockName) -> Option<Seat> {
        let shared = &self.probe.shared;
        let (seat, _) = shared.rooms.enter(name, Join::AtEnd);
        seat.set_listening();
        let _ = tokio::time::timeout(PROMPT, shared.backend.listen(name)).await;
        // What rang before has nothing to do with it.
        let _ = seat.bell.rings().now_or_never();
        Some(seat)
    }

    async fn step<T>(&self, step: &'static str, send: impl FnOnce(Duration) -> Step<T>) -> Result<T, Halt> {
        match send(self.probe.limit).await {
            Ok(Answer { value, .. }) => {
                self.done.fetch_add(1, Ordering::Relaxed);
                Ok(value)
            }
            Err(failure) => {
                let is_denied = matches!(failure.kind, FailureKind::Denied(_));
                Err(Halt { step, is_denied, why: failure.to_string() })
            }
        }
    }
}

/// Whether a message comes.
async fn hears(seat: &Seat) -> bool {
    tokio::time::timeout(PROMPT, seat.bell.rings()).await.is_ok()
}

/// A line of a batch that fails does so in silence. On a name that nobody else uses, want of a right is the reason.
fn whole<T>(step: &'static str, outcomes: &[Option<T>]) -> Result<(), Halt> {
    if outcomes.iter().all(Option::is_some) {
        return Ok(());
    }
    let why = "the server does not say which command of the script".to_owned();
    Err(Halt { step, why, is_denied: true })
}
