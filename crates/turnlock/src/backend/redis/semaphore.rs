//! The semaphore: a number of permits without owners.

use turnlock_core::model::{Claim, Deed, Wish};
use turnlock_core::{LockName, OwnerId};

use super::script_call::ScriptCall;
use super::{requests, scripts};

pub(super) fn acquire(claim: Claim<'_>, _: Wish) -> ScriptCall {
    let memory = requests::memory(claim.name, claim.owner);
    ScriptCall::on_all(&scripts::SEMAPHORE_ACQUIRE, claim.name, &[&memory]).arg(claim.permits)
}

pub(super) fn release(claim: Claim<'_>) -> ScriptCall {
    let memory = requests::memory(claim.name, claim.owner);
    let call = ScriptCall::on_all(&scripts::SEMAPHORE_RELEASE, claim.name, &[&memory]);
    call.arg(claim.permits).arg(u8::from(claim.unsure)).arg(claim.name.channel())
}

pub(super) fn perform(name: &LockName, deed: Deed, request: &OwnerId) -> ScriptCall {
    requests::perform(&scripts::SEMAPHORE_PERFORM, name, &[], deed, request)
}

/// Also for latches, which look the same.
pub(super) fn inspect(name: &LockName) -> ScriptCall {
    ScriptCall::on(&scripts::SEMAPHORE_INSPECT, name)
}
