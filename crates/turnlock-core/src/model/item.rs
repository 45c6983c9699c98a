use std::mem::discriminant;

use super::{
    FairLockState, FencedLockState, LatchState, LockState, Model, Notification, Now, Owners,
    PermitSemaphoreState, ReadWriteLockState, Reply, SemaphoreState, Snapshot, Step,
};
use crate::{Kind, OwnerId};

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
    Plain(LockState),
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

impl Item {
    /// Creates the initial state of a kind.
    pub fn new(kind: Kind) -> Self {
        match kind {
            Kind::Lock | Kind::Spin | Kind::Fenced => Self::Lock(FencedLockState::default()),
            Kind::Fair => Self::Fair(FairLockState::default()),
            Kind::Read | Kind::Write => Self::ReadWrite(ReadWriteLockState::default()),
            Kind::Plain => Self::Plain(LockState::default()),
            Kind::Semaphore => Self::Semaphore(SemaphoreState::default()),
            Kind::Permits => Self::Permits(PermitSemaphoreState::default()),
            Kind::Latch => Self::Latch(LatchState::default()),
        }
    }

    /// Returns the kind that stands for all kinds with this state, and the state.
    fn model(&mut self) -> (Kind, &mut dyn Model) {
        match self {
            Self::Lock(state) => (Kind::Lock, state),
            Self::Fair(state) => (Kind::Fair, state),
            Self::ReadWrite(state) => (Kind::Write, state),
            Self::Plain(state) => (Kind::Plain, state),
            Self::Semaphore(state) => (Kind::Semaphore, state),
            Self::Permits(state) => (Kind::Permits, state),
            Self::Latch(state) => (Kind::Latch, state),
        }
    }

    /// Executes a step of any kind.
    ///
    /// # Errors
    ///
    /// [`WrongKind`] if the key is in use for another kind, or the kind does not have this step. Nothing has
    /// changed then.
    pub fn apply(&mut self, now: Now, step: &Step) -> Result<(Reply, Notification), WrongKind> {
        let kind = step.kind();
        let is_its_kind = discriminant(self) == discriminant(&Self::new(kind));
        let (found, model) = self.model();
        let applied = match step {
            _ if !is_its_kind => None,
            Step::Inspect(_) => {
                let mut snapshot = model.snapshot(now);
                // On Redis the token has a key of its own, which clients of the other kinds need no permission
                // for.
                snapshot.token = snapshot.token.filter(|_| kind == Kind::Fenced);
                Some(Reply::Snapshot(snapshot).quiet())
            }
            _ => model.apply(now, step),
        };
        let (reply, notification) = applied.ok_or(WrongKind(found))?;
        Ok((reply, published(kind, notification)))
    }

    /// Returns the state as seen from outside.
    pub fn snapshot(&mut self, now: Now) -> Snapshot {
        self.model().1.snapshot(now)
    }

    /// Returns the owners that the state mentions.
    pub fn owners(&mut self) -> Owners {
        self.model().1.owners()
    }

    /// Removes the holds and queue entries of owners that no longer exist, whatever their leases.
    pub fn remove_owners(&mut self, now: Now, is_gone: impl Fn(&OwnerId) -> bool) -> Notification {
        let (kind, model) = self.model();
        published(kind, model.remove_owners(now, &is_gone))
    }

    /// Removes all owners and requests, after a restart of the clock.
    ///
    /// Numbers and tokens stay.
    pub fn reset_after_reboot(&mut self, now: Now) {
        let (_, model) = self.model();
        model.remove_owners(now, &|_| true);
        model.forget_all();
    }

    /// Returns the kind that the state shows, for callers that know only the key.
    ///
    /// Of a read-write lock that is the side that is held; of the kinds that share a key, [`Kind::Fenced`] if
    /// there is a token, else [`Kind::Lock`].
    pub fn kind(&mut self, now: Now) -> Kind {
        match self {
            Self::Lock(state) if state.token().is_some() => Kind::Fenced,
            Self::ReadWrite(state) if !state.has_writer(now) => Kind::Read,
            _ => self.model().0,
        }
    }

    /// Returns `true` if nothing is left to remember, so that the state can be deleted.
    pub fn is_free(&mut self, now: Now) -> bool {
        self.model().1.is_free(now)
    }
}

/// Returns the notification after a step on this kind: spin locks and plain locks publish no releases.
fn published(kind: Kind, notification: Notification) -> Notification {
    if kind.publishes_releases() { notification } else { Notification::None }
}
