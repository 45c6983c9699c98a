//! The plain lock: one string with an expiry.

use turnlock_core::model::{AcquireOptions, Claim};
use turnlock_core::{Lease, LockName};

use super::script_call::ScriptCall;
use super::{reentrant, scripts};
use crate::backend::Renewal;

pub(super) fn acquire(claim: Claim<'_>, options: AcquireOptions) -> ScriptCall {
    let call = ScriptCall::on(&scripts::PLAIN_ACQUIRE, claim.name);
    call.arg(claim.owner.as_str()).arg(options.lease.as_millis())
}

pub(super) fn release(claim: Claim<'_>) -> ScriptCall {
    ScriptCall::on(&scripts::PLAIN_RELEASE, claim.name).arg(claim.owner.as_str())
}

pub(super) fn renew(lines: &[Renewal]) -> ScriptCall {
    reentrant::renew_by(&scripts::PLAIN_RENEW, lines)
}

pub(super) fn unlock_after(claim: Claim<'_>, lease: Lease) -> ScriptCall {
    ScriptCall::on(&scripts::PLAIN_UNLOCK_AFTER, claim.name).arg(claim.owner.as_str()).arg(lease.as_millis())
}

pub(super) fn force_unlock(name: &LockName) -> ScriptCall {
    ScriptCall::on(&scripts::PLAIN_FORCE_UNLOCK, name)
}

pub(super) fn inspect(name: &LockName) -> ScriptCall {
    ScriptCall::on(&scripts::PLAIN_INSPECT, name)
}
