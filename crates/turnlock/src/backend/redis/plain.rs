//! The plain lock.

use turnlock_core::model::{Claim, Wish};
use turnlock_core::{Lease, LockName};

use super::script_call::ScriptCall;
use super::{reentrant, scripts};
use crate::backend::Renewal;

pub(super) fn acquire(claim: Claim<'_>, wish: Wish) -> ScriptCall {
    let call = ScriptCall::on(&scripts::PLAIN_ACQUIRE, claim.name);
    call.arg(claim.owner.as_str()).arg(wish.lease.as_millis())
}

pub(super) fn release(claim: Claim<'_>) -> ScriptCall {
    ScriptCall::on(&scripts::PLAIN_RELEASE, claim.name).arg(claim.owner.as_str())
}

pub(super) fn renew(lines: &[Renewal]) -> ScriptCall {
    reentrant::renew_by(&scripts::PLAIN_RENEW, lines)
}

pub(super) fn keep(claim: Claim<'_>, lease: Lease) -> ScriptCall {
    ScriptCall::on(&scripts::PLAIN_KEEP, claim.name).arg(claim.owner.as_str()).arg(lease.as_millis())
}

pub(super) fn force_unlock(name: &LockName) -> ScriptCall {
    ScriptCall::on(&scripts::PLAIN_FORCE_UNLOCK, name)
}

pub(super) fn inspect(name: &LockName) -> ScriptCall {
    ScriptCall::on(&scripts::PLAIN_INSPECT, name)
}
