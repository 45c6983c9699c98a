//! The semaphore: a number of permits without owners.

use turnlock_core::model::{AcquireOptions, Claim, CounterOp};
use turnlock_core::{LockName, OwnerId};

use super::script_call::ScriptCall;
use super::{requests, scripts};

pub(super) fn acquire(claim: Claim<'_>, _: AcquireOptions) -> ScriptCall {
    let record_key = requests::record_key(claim.name, claim.owner);
    ScriptCall::on_all(&scripts::SEMAPHORE_ACQUIRE, claim.name, &[&record_key]).arg(claim.permits)
}

pub(super) fn release(claim: Claim<'_>) -> ScriptCall {
    let record_key = requests::record_key(claim.name, claim.owner);
    let call = ScriptCall::on_all(&scripts::SEMAPHORE_RELEASE, claim.name, &[&record_key]);
    call.arg(claim.permits).arg(u8::from(claim.unsure)).arg(claim.name.channel())
}

pub(super) fn perform(name: &LockName, op: CounterOp, request: &OwnerId) -> ScriptCall {
    requests::perform(&scripts::SEMAPHORE_PERFORM, name, &[], op, request)
}

/// Also for latches, which have the same format.
pub(super) fn inspect(name: &LockName) -> ScriptCall {
    ScriptCall::on(&scripts::SEMAPHORE_INSPECT, name)
}
