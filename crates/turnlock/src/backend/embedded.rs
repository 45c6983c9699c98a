//! What the memory and file stores have in common: they execute the models themselves.

use turnlock_core::model::{Claim, Now};
use turnlock_core::{LockName, OwnerId};

use super::{Failure, FailureKind, Step};
use crate::clock;

/// The current time for the models.
pub(super) fn now() -> Now {
    Now { moment: clock::now(), wall: clock::wall_micros() }
}

/// An owned [`Claim`], for a step that is polled later.
pub(super) struct OwnedClaim {
    pub(super) name: LockName,
    owner: OwnerId,
    target: u32,
    permits: u32,
    under: Option<OwnerId>,
    unsure: bool,
}

impl OwnedClaim {
    pub(super) fn of(claim: Claim<'_>) -> Self {
        let Claim { name, owner, target, permits, under, unsure } = claim;
        let (name, owner, under) = (name.clone(), owner.clone(), under.cloned());
        Self { name, owner, target, permits, under, unsure }
    }

    pub(super) fn as_claim(&self) -> Claim<'_> {
        let Self { name, owner, target, permits, under, unsure } = self;
        Claim { name, owner, target: *target, permits: *permits, under: under.as_ref(), unsure: *unsure }
    }
}

/// The failure of a step that requires replicas, which these stores do not have.
pub(super) fn unacknowledged<T: Send + 'static>(name: &LockName, wanted: u32) -> Step<T> {
    let kind = FailureKind::NotEnoughReplicas { name: name.to_string(), wanted, reached: 0 };
    Box::pin(std::future::ready(Err(Failure::refused(kind))))
}
