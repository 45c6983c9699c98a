use super::{
    Acquired, Claim, Deed, FairLockState, FencedLockState, LatchState, Now, Parties, PermitSemaphoreState,
    Place, PlainLockState, ReadWriteLockState, Released, Renewed, SemaphoreState, Snapshot, Wake, Wish,
};
use crate::{Kind, Lease, OwnerId};

/// What stands at one key of an embedded store: the state of one thing of the family.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A lock, a spin lock or a fenced lock: they share a key.
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

/// The key is used for a thing of another kind, which this names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfAnotherKind(pub &'static str);

/// An answer, or why there can be none.
type Outcome<T> = Result<T, OfAnotherKind>;

impl Item {
    /// One that nobody has used yet.
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

    /// Takes it, or raises the count of a hold to the target.
    pub fn acquire(&mut self, now: Now, claim: &Claim<'_>, wish: &Wish) -> Outcome<(Acquired, Wake)> {
        let Claim { owner, target, .. } = *claim;
        let quiet = |answer| Ok((answer, Wake::Nobody));
        match (claim.name.kind(), self) {
            (Kind::Lock | Kind::Spin, Self::Lock(state)) => {
                quiet(state.lock.acquire(now.moment, owner, target, wish.lease))
            }
            (Kind::Fenced, Self::Lock(state)) => {
                quiet(state.acquire(now, owner, target, wish.lease, wish.highest_token))
            }
            (Kind::Plain, Self::Plain(state)) => quiet(state.acquire(now.moment, owner, target, wish.lease)),
            (Kind::Fair, Self::Fair(state)) => Ok(state.acquire(now, claim, wish)),
            (Kind::Read | Kind::Write, Self::ReadWrite(state)) => Ok(state.acquire(now, claim, wish)),
            (Kind::Semaphore, Self::Semaphore(state)) => Ok(state.acquire(now, claim, wish)),
            (Kind::Permits, Self::Permits(state)) => Ok(state.acquire(now, claim, wish)),
            (_, other) => Err(other.found()),
        }
    }

    /// Lowers the count of a hold to the target; zero ends it.
    pub fn release(&mut self, now: Now, claim: &Claim<'_>) -> Outcome<(Released, Wake)> {
        let Claim { owner, target, .. } = *claim;
        let told = |answer| {
            let wake = if answer == Released::Freed { Wake::Listeners } else { Wake::Nobody };
            Ok((answer, wake))
        };
        match (claim.name.kind(), self) {
            (Kind::Lock | Kind::Fenced, Self::Lock(state)) => {
                told(state.lock.release(now.moment, owner, target))
            }
            (Kind::Spin, Self::Lock(state)) => {
                Ok((state.lock.release(now.moment, owner, target), Wake::Nobody))
            }
            (Kind::Plain, Self::Plain(state)) => Ok((state.release(now.moment, owner), Wake::Nobody)),
            (Kind::Fair, Self::Fair(state)) => Ok(state.release(now, claim)),
            (Kind::Read | Kind::Write, Self::ReadWrite(state)) => Ok(state.release(now, claim)),
            (Kind::Semaphore, Self::Semaphore(state)) => Ok(state.release(now, claim)),
            (Kind::Permits, Self::Permits(state)) => Ok(state.release(now, claim)),
            (_, other) => Err(other.found()),
        }
    }

    /// Extends the lease of a hold, or only looks whether it stands.
    pub fn renew(&mut self, now: Now, claim: &Claim<'_>, lease: Option<Lease>) -> Outcome<Renewed> {
        match (claim.name.kind(), self) {
            (Kind::Lock | Kind::Spin | Kind::Fenced, Self::Lock(state)) => {
                Ok(state.lock.renew(now.moment, claim.owner, lease))
            }
            (Kind::Plain, Self::Plain(state)) => Ok(state.renew(now.moment, claim.owner, lease)),
            (Kind::Fair, Self::Fair(state)) => Ok(state.renew(now, claim.owner, lease)),
            (Kind::Read | Kind::Write, Self::ReadWrite(state)) => Ok(state.renew(now, claim, lease)),
            (Kind::Permits, Self::Permits(state)) => Ok(state.renew(now, claim, lease)),
            (_, other) => Err(other.found()),
        }
    }

    /// Sets the lease of a hold to just this, which may be less than is left.
    pub fn keep(&mut self, now: Now, claim: &Claim<'_>, lease: Lease) -> Outcome<(Renewed, Wake)> {
        let owner = claim.owner;
        match (claim.name.kind(), self) {
            (Kind::Lock | Kind::Fenced, Self::Lock(state)) => Ok(state.lock.keep(now.moment, owner, lease)),
            (Kind::Spin, Self::Lock(state)) => {
                Ok((state.lock.keep(now.moment, owner, lease).0, Wake::Nobody))
            }
            (Kind::Plain, Self::Plain(state)) => Ok((state.keep(now.moment, owner, lease), Wake::Nobody)),
            (Kind::Fair, Self::Fair(state)) => Ok(state.keep(now, owner, lease)),
            (Kind::Read | Kind::Write, Self::ReadWrite(state)) => Ok(state.keep(now, claim, lease)),
            (Kind::Permits, Self::Permits(state)) => Ok(state.keep(now, claim, lease)),
            (_, other) => Err(other.found()),
        }
    }

    /// Frees it, whoever holds it. Whether it was held.
    pub fn force_unlock(&mut self, now: Now, kind: Kind) -> Outcome<(bool, Wake)> {
        let told = |was_held| Ok((was_held, if was_held { Wake::Listeners } else { Wake::Nobody }));
        match (kind, self) {
            (Kind::Lock | Kind::Fenced, Self::Lock(state)) => told(state.lock.force_unlock(now.moment)),
            (Kind::Spin, Self::Lock(state)) => Ok((state.lock.force_unlock(now.moment), Wake::Nobody)),
            (Kind::Plain, Self::Plain(state)) => Ok((state.force_unlock(now.moment), Wake::Nobody)),
            (Kind::Fair, Self::Fair(state)) => Ok(state.force_unlock(now)),
            (Kind::Read | Kind::Write, Self::ReadWrite(state)) => Ok(state.force_unlock(now, kind)),
            (_, other) => Err(other.found()),
        }
    }

    /// A step on a number without owners.
    pub fn perform(&mut self, now: Now, kind: Kind, deed: Deed, request: &OwnerId) -> Outcome<(i64, Wake)> {
        match (kind, self) {
            (Kind::Semaphore, Self::Semaphore(state)) => Ok(state.perform(now, deed, request)),
            (Kind::Permits, Self::Permits(state)) => Ok(state.perform(now, deed, request)),
            (Kind::Latch, Self::Latch(state)) => Ok(state.perform(now, deed, request)),
            (_, other) => Err(other.found()),
        }
    }

    /// Forgets a request on a number without owners, of which no copy is under way.
    pub fn forget(&mut self, kind: Kind, request: &OwnerId) -> Outcome<()> {
        match (kind, self) {
            (Kind::Semaphore, Self::Semaphore(state)) => state.forget(request),
            (Kind::Permits, Self::Permits(state)) => state.forget(request),
            (Kind::Latch, Self::Latch(state)) => state.forget(request),
            (_, other) => return Err(other.found()),
        }
        Ok(())
    }

    /// Says that a waiter of a fair lock is alive, and asks where it stands.
    pub fn attend(&mut self, now: Now, waiter: &OwnerId) -> Outcome<(Place, Wake)> {
        match self {
            Self::Fair(state) => Ok(state.attend(now, waiter)),
            other => Err(other.found()),
        }
    }

    /// What it looks like.
    pub fn snapshot(&mut self, now: Now, kind: Kind) -> Outcome<Snapshot> {
        match (kind, self) {
            (Kind::Fenced, Self::Lock(state)) => Ok(state.snapshot(now)),
            // The token is another key, which others need no right to.
            (Kind::Lock | Kind::Spin, Self::Lock(state)) => {
                Ok(Snapshot { token: None, ..state.snapshot(now) })
            }
            (Kind::Plain, Self::Plain(state)) => Ok(state.snapshot(now.moment)),
            (Kind::Fair, Self::Fair(state)) => Ok(state.snapshot(now)),
            (Kind::Read | Kind::Write, Self::ReadWrite(state)) => Ok(state.snapshot(now)),
            (Kind::Semaphore, Self::Semaphore(state)) => Ok(state.snapshot(now)),
            (Kind::Permits, Self::Permits(state)) => Ok(state.snapshot(now)),
            (Kind::Latch, Self::Latch(state)) => Ok(state.snapshot(now)),
            (_, other) => Err(other.found()),
        }
    }

    /// Who has something of it.
    pub fn parties(&self) -> Parties {
        let alone = |owner: Option<&OwnerId>| Parties {
            holding: owner.into_iter().cloned().collect(),
            waiting: Vec::new(),
        };
        match self {
            Self::Lock(state) => alone(state.lock.owner()),
            Self::Plain(state) => alone(state.owner()),
            Self::Fair(state) => state.parties(),
            Self::ReadWrite(state) => state.parties(),
            Self::Semaphore(state) => state.parties(),
            Self::Permits(state) => state.parties(),
            Self::Latch(_) => Parties::default(),
        }
    }

    /// Ends at once, whatever their leases, what those have who are gone for good.
    pub fn void(&mut self, now: Now, is_gone: impl Fn(&OwnerId) -> bool) -> Wake {
        match self {
            Self::Lock(state) => Wake::if_so(state.lock.void(is_gone)),
            // Nobody listens there.
            Self::Plain(state) => {
                state.void(is_gone);
                Wake::Nobody
            }
            Self::Fair(state) => state.void(now, is_gone),
            Self::ReadWrite(state) => state.void(now, is_gone),
            Self::Semaphore(state) => state.void(now, is_gone),
            Self::Permits(state) => state.void(is_gone),
            Self::Latch(_) => Wake::Nobody,
        }
    }

    /// Ends what everybody has, and forgets every request: the clock that all moments were read from has begun anew.
    /// Numbers and tokens stay.
    pub fn begin_anew(&mut self, now: Now) {
        self.void(now, |_| true);
        match self {
            Self::Semaphore(state) => state.forget_all(),
            Self::Permits(state) => state.forget_all(),
            Self::Latch(state) => state.forget_all(),
            Self::Lock(_) | Self::Fair(_) | Self::ReadWrite(_) | Self::Plain(_) => {}
        }
    }

    /// What it is, to one who has only its key: of a read-write lock the side that is held, and of locks that share a key the
    /// one that explains what is there.
    pub fn kind(&mut self, now: Now) -> Kind {
        match self {
            Self::Lock(state) => match state.snapshot(now).token {
                Some(_) => Kind::Fenced,
                None => Kind::Lock,
            },
            Self::Fair(_) => Kind::Fair,
            Self::ReadWrite(state) => {
                if state.is_written(now) {
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

    /// What it is, if somebody holds it.
    pub fn held_kind(&mut self, now: Now) -> Option<Kind> {
        let kind = self.kind(now);
        self.snapshot(now, kind).ok().filter(|seen| !seen.holders.is_empty()).map(|_| kind)
    }

    /// What it is, if something is left to remember of it.
    pub fn remembered_kind(&mut self, now: Now) -> Option<Kind> {
        (!self.is_free(now)).then(|| self.kind(now))
    }

    /// Whether nothing is left to remember.
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

    fn found(&self) -> OfAnotherKind {
        OfAnotherKind(match self {
            Self::Lock(_) => "a lock",
            Self::Fair(_) => "a fair lock",
            Self::ReadWrite(_) => "a read-write lock",
            Self::Plain(_) => "a plain lock",
            Self::Semaphore(_) => "a semaphore",
            Self::Permits(_) => "a permit semaphore",
            Self::Latch(_) => "a latch",
        })
    }
}
