use super::{
    AcquireOptions, Acquired, Claim, CounterOp, FairLockState, FencedLockState, LatchState, Notification,
    Now, Owners, PermitSemaphoreState, PlainLockState, QueuePosition, ReadWriteLockState, Released, Renewed,
    Reply, SemaphoreState, Snapshot, Step,
};
use crate::{Kind, Lease, OwnerId};

/// The state of a primitive of any kind: what an embedded store keeps under one key.
///
/// Each step is that of the state inside. A step on a state of another kind fails with [`WrongKind`].
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A lock, a spin lock or a fenced lock, which share a key.
    Lock(FencedLockState),
    /// A fair lock.
    Fair(FairLockState),
    /// A read-write lock.
    ReadWrite(ReadWriteLockState),
    /// A plain lock.
    Plain(PlainLockState),
    /// A semaphore.
    Semaphore(SemaphoreState),
    /// A permit semaphore.
    Permits(PermitSemaphoreState),
    /// A latch.
    Latch(LatchState),
}

/// The key is in use for this kind of primitive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongKind(pub Kind);

type Outcome<T> = Result<T, WrongKind>;

impl Item {
    /// Creates the initial state of a kind.
    pub fn new(kind: Kind) -> Self {
        match kind {
            Kind::Lock | Kind::Spin | Kind::Fenced => Self::Lock(FencedLockState::default()),
            Kind::Fair => Self::Fair(FairLockState::default()),
            Kind::Read | Kind::Write => Self::ReadWrite(ReadWriteLockState::default()),
            Kind::Plain => Self::Plain(PlainLockState::default()),
            Kind::Semaphore => Self::Semaphore(SemaphoreState::default()),
            Kind::Permits => Self::Permits(PermitSemaphoreState::default()),
            Kind::Latch => Self::Latch(LatchState::default()),
        }
    }

    /// Executes a step of any kind.
    ///
    /// # Errors
    ///
    /// [`WrongKind`] if the key is in use for another kind. Nothing has changed then.
    pub fn apply(&mut self, now: Now, step: &Step) -> Outcome<(Reply, Notification)> {
        fn reply<T>(wrap: fn(T) -> Reply) -> impl FnOnce((T, Notification)) -> (Reply, Notification) {
            move |(reply, notification)| (wrap(reply), notification)
        }
        let quiet = |reply| (reply, Notification::None);
        match step {
            Step::Acquire(claim, options) => self.acquire(now, claim, options).map(reply(Reply::Acquired)),
            Step::Release(claim) => self.release(now, claim).map(reply(Reply::Released)),
            Step::Renew(claim, lease) => self.renew(now, claim, *lease).map(Reply::Renewed).map(quiet),
            Step::SetLease { claim, lease, .. } => {
                self.unlock_after(now, claim, *lease).map(reply(Reply::Renewed))
            }
            Step::Heartbeat(_, waiter) => self.heartbeat(now, waiter).map(reply(Reply::Position)),
            Step::ForceUnlock(name) => self.force_unlock(now, name.kind()).map(reply(Reply::ForceUnlocked)),
            Step::Perform(name, op, request) => {
                self.perform(now, name.kind(), *op, request).map(reply(Reply::Number))
            }
            Step::Forget(name, request) => {
                self.forget(name.kind(), request).map(|()| quiet(Reply::Forgotten))
            }
            Step::Inspect(name) => self.snapshot(now, name.kind()).map(Reply::Snapshot).map(quiet),
        }
    }

    /// Acquires it, or raises the count of a hold to the target.
    pub fn acquire(
        &mut self,
        now: Now,
        claim: &Claim,
        options: &AcquireOptions,
    ) -> Outcome<(Acquired, Notification)> {
        let (owner, target) = (&claim.owner, claim.target);
        let without_notification = |reply| Ok((reply, Notification::None));
        match (claim.name.kind(), self) {
            (Kind::Lock | Kind::Spin, Self::Lock(state)) => {
                without_notification(state.lock.acquire(now.moment, owner, target, options.lease))
            }
            (Kind::Fenced, Self::Lock(state)) => {
                without_notification(state.acquire(now, owner, target, options.lease, options.highest_token))
            }
            (Kind::Plain, Self::Plain(state)) => {
                without_notification(state.acquire(now.moment, owner, target, options.lease))
            }
            (Kind::Fair, Self::Fair(state)) => Ok(state.acquire(now, claim, options)),
            (Kind::Read | Kind::Write, Self::ReadWrite(state)) => Ok(state.acquire(now, claim, options)),
            (Kind::Semaphore, Self::Semaphore(state)) => Ok(state.acquire(now, claim, options)),
            (Kind::Permits, Self::Permits(state)) => Ok(state.acquire(now, claim, options)),
            (_, other) => Err(other.wrong_kind()),
        }
    }

    /// Lowers the count of a hold to the target; zero ends it.
    pub fn release(&mut self, now: Now, claim: &Claim) -> Outcome<(Released, Notification)> {
        let (owner, target) = (&claim.owner, claim.target);
        let published = |reply| Ok((reply, Notification::subscribers_if(reply == Released::Freed)));
        match (claim.name.kind(), self) {
            (Kind::Lock | Kind::Fenced, Self::Lock(state)) => {
                published(state.lock.release(now.moment, owner, target))
            }
            (Kind::Spin, Self::Lock(state)) => {
                Ok((state.lock.release(now.moment, owner, target), Notification::None))
            }
            (Kind::Plain, Self::Plain(state)) => Ok((state.release(now.moment, owner), Notification::None)),
            (Kind::Fair, Self::Fair(state)) => Ok(state.release(now, claim)),
            (Kind::Read | Kind::Write, Self::ReadWrite(state)) => Ok(state.release(now, claim)),
            (Kind::Semaphore, Self::Semaphore(state)) => Ok(state.release(now, claim)),
            (Kind::Permits, Self::Permits(state)) => Ok(state.release(now, claim)),
            (_, other) => Err(other.wrong_kind()),
        }
    }

    /// Extends the lease of a hold. With `lease` of `None`, only checks that it is held.
    pub fn renew(&mut self, now: Now, claim: &Claim, lease: Option<Lease>) -> Outcome<Renewed> {
        match (claim.name.kind(), self) {
            (Kind::Lock | Kind::Spin | Kind::Fenced, Self::Lock(state)) => {
                Ok(state.lock.renew(now.moment, &claim.owner, lease))
            }
            (Kind::Plain, Self::Plain(state)) => Ok(state.renew(now.moment, &claim.owner, lease)),
            (Kind::Fair, Self::Fair(state)) => Ok(state.renew(now, &claim.owner, lease)),
            (Kind::Read | Kind::Write, Self::ReadWrite(state)) => Ok(state.renew(now, claim, lease)),
            (Kind::Permits, Self::Permits(state)) => Ok(state.renew(now, claim, lease)),
            (_, other) => Err(other.wrong_kind()),
        }
    }

    /// Sets the lease of a hold to exactly `lease`, which may shorten it.
    pub fn unlock_after(
        &mut self,
        now: Now,
        claim: &Claim,
        lease: Lease,
    ) -> Outcome<(Renewed, Notification)> {
        let owner = &claim.owner;
        match (claim.name.kind(), self) {
            (Kind::Lock | Kind::Fenced, Self::Lock(state)) => {
                Ok(state.lock.unlock_after(now.moment, owner, lease))
            }
            (Kind::Spin, Self::Lock(state)) => {
                Ok((state.lock.unlock_after(now.moment, owner, lease).0, Notification::None))
            }
            (Kind::Plain, Self::Plain(state)) => {
                Ok((state.unlock_after(now.moment, owner, lease), Notification::None))
            }
            (Kind::Fair, Self::Fair(state)) => Ok(state.unlock_after(now, owner, lease)),
            (Kind::Read | Kind::Write, Self::ReadWrite(state)) => Ok(state.unlock_after(now, claim, lease)),
            (Kind::Permits, Self::Permits(state)) => Ok(state.unlock_after(now, claim, lease)),
            (_, other) => Err(other.wrong_kind()),
        }
    }

    /// Ends the hold of any owner. Returns `true` if it was held.
    pub fn force_unlock(&mut self, now: Now, kind: Kind) -> Outcome<(bool, Notification)> {
        let published = |was_held| Ok((was_held, Notification::subscribers_if(was_held)));
        match (kind, self) {
            (Kind::Lock | Kind::Fenced, Self::Lock(state)) => published(state.lock.force_unlock(now.moment)),
            (Kind::Spin, Self::Lock(state)) => Ok((state.lock.force_unlock(now.moment), Notification::None)),
            (Kind::Plain, Self::Plain(state)) => Ok((state.force_unlock(now.moment), Notification::None)),
            (Kind::Fair, Self::Fair(state)) => Ok(state.force_unlock(now)),
            (Kind::Read | Kind::Write, Self::ReadWrite(state)) => Ok(state.force_unlock(now, kind)),
            (_, other) => Err(other.wrong_kind()),
        }
    }

    /// Performs an operation on a counter, once for each `request`.
    pub fn perform(
        &mut self,
        now: Now,
        kind: Kind,
        op: CounterOp,
        request: &OwnerId,
    ) -> Outcome<(i64, Notification)> {
        match (kind, self) {
            (Kind::Semaphore, Self::Semaphore(state)) => Ok(state.perform(now, op, request)),
            (Kind::Permits, Self::Permits(state)) => Ok(state.perform(now, op, request)),
            (Kind::Latch, Self::Latch(state)) => Ok(state.perform(now, op, request)),
            (_, other) => Err(other.wrong_kind()),
        }
    }

    /// Forgets a request on a counter. No copy of it may be under way.
    pub fn forget(&mut self, kind: Kind, request: &OwnerId) -> Outcome<()> {
        match (kind, self) {
            (Kind::Semaphore, Self::Semaphore(state)) => state.forget(request),
            (Kind::Permits, Self::Permits(state)) => state.forget(request),
            (Kind::Latch, Self::Latch(state)) => state.forget(request),
            (_, other) => return Err(other.wrong_kind()),
        }
        Ok(())
    }

    /// Records a heartbeat of a waiter of a fair lock, and returns its position.
    pub fn heartbeat(&mut self, now: Now, waiter: &OwnerId) -> Outcome<(QueuePosition, Notification)> {
        match self {
            Self::Fair(state) => Ok(state.heartbeat(now, waiter)),
            other => Err(other.wrong_kind()),
        }
    }

    /// Returns the state as seen from outside.
    pub fn snapshot(&mut self, now: Now, kind: Kind) -> Outcome<Snapshot> {
        match (kind, self) {
            (Kind::Fenced, Self::Lock(state)) => Ok(state.snapshot(now)),
            // On Redis the token has a key of its own, which clients of the other kinds need no permission
            // for.
            (Kind::Lock | Kind::Spin, Self::Lock(state)) => {
                Ok(Snapshot { token: None, ..state.snapshot(now) })
            }
            (Kind::Plain, Self::Plain(state)) => Ok(state.snapshot(now.moment)),
            (Kind::Fair, Self::Fair(state)) => Ok(state.snapshot(now)),
            (Kind::Read | Kind::Write, Self::ReadWrite(state)) => Ok(state.snapshot(now)),
            (Kind::Semaphore, Self::Semaphore(state)) => Ok(state.snapshot(now)),
            (Kind::Permits, Self::Permits(state)) => Ok(state.snapshot(now)),
            (Kind::Latch, Self::Latch(state)) => Ok(state.snapshot(now)),
            (_, other) => Err(other.wrong_kind()),
        }
    }

    /// Returns the owners that the state mentions.
    pub fn owners(&self) -> Owners {
        let single = |owner: Option<&OwnerId>| Owners {
            holders: owner.into_iter().cloned().collect(),
            waiters: Vec::new(),
        };
        match self {
            Self::Lock(state) => single(state.lock.owner()),
            Self::Plain(state) => single(state.owner()),
            Self::Fair(state) => state.owners(),
            Self::ReadWrite(state) => state.owners(),
            Self::Semaphore(state) => state.owners(),
            Self::Permits(state) => state.owners(),
            Self::Latch(_) => Owners::default(),
        }
    }

    /// Removes the holds and queue entries of owners that no longer exist, whatever their leases.
    pub fn remove_owners(&mut self, now: Now, is_gone: impl Fn(&OwnerId) -> bool) -> Notification {
        match self {
            Self::Lock(state) => Notification::subscribers_if(state.lock.remove_owners(is_gone)),
            // Plain locks publish no releases.
            Self::Plain(state) => {
                state.remove_owners(is_gone);
                Notification::None
            }
            Self::Fair(state) => state.remove_owners(now, is_gone),
            Self::ReadWrite(state) => state.remove_owners(now, is_gone),
            Self::Semaphore(state) => state.remove_owners(now, is_gone),
            Self::Permits(state) => state.remove_owners(is_gone),
            Self::Latch(_) => Notification::None,
        }
    }

    /// Removes all owners and requests, after a restart of the clock.
    ///
    /// Numbers and tokens stay.
    pub fn reset_after_reboot(&mut self, now: Now) {
        self.remove_owners(now, |_| true);
        match self {
            Self::Semaphore(state) => state.forget_all(),
            Self::Permits(state) => state.forget_all(),
            Self::Latch(state) => state.forget_all(),
            Self::Lock(_) | Self::Fair(_) | Self::ReadWrite(_) | Self::Plain(_) => {}
        }
    }

    /// Returns the kind that the state shows, for callers that know only the key.
    ///
    /// Of a read-write lock that is the side that is held; of the kinds that share a key, [`Kind::Fenced`] if
    /// there is a token, else [`Kind::Lock`].
    pub fn kind(&mut self, now: Now) -> Kind {
        match self {
            Self::Lock(state) => match state.snapshot(now).token {
                Some(_) => Kind::Fenced,
                None => Kind::Lock,
            },
            Self::Fair(_) => Kind::Fair,
            Self::ReadWrite(state) => {
                if state.has_writer(now) {
                    Kind::Write
                } else {
                    Kind::Read
                }
            }
            Self::Plain(_) => Kind::Plain,
            Self::Semaphore(_) => Kind::Semaphore,
            Self::Permits(_) => Kind::Permits,
            Self::Latch(_) => Kind::Latch,
        }
    }

    /// Returns the kind, if it has a holder.
    pub fn held_kind(&mut self, now: Now) -> Option<Kind> {
        let kind = self.kind(now);
        self.snapshot(now, kind).ok().filter(|snapshot| !snapshot.holders.is_empty()).map(|_| kind)
    }

    /// Returns the kind, unless the state is [free](Self::is_free).
    pub fn remembered_kind(&mut self, now: Now) -> Option<Kind> {
        (!self.is_free(now)).then(|| self.kind(now))
    }

    /// Returns `true` if nothing is left to remember, so that the state can be deleted.
    pub fn is_free(&mut self, now: Now) -> bool {
        match self {
            Self::Lock(state) => state.is_free(now),
            Self::Fair(state) => state.is_free(now),
            Self::ReadWrite(state) => state.is_free(now),
            Self::Plain(state) => state.is_free(now.moment),
            Self::Semaphore(state) => state.is_free(now),
            Self::Permits(state) => state.is_free(now),
            Self::Latch(state) => state.is_free(now),
        }
    }

    fn wrong_kind(&self) -> WrongKind {
        WrongKind(match self {
            Self::Lock(_) => Kind::Lock,
            Self::Fair(_) => Kind::Fair,
            Self::ReadWrite(_) => Kind::Write,
            Self::Plain(_) => Kind::Plain,
            Self::Semaphore(_) => Kind::Semaphore,
            Self::Permits(_) => Kind::Permits,
            Self::Latch(_) => Kind::Latch,
        })
    }
}
