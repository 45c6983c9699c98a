//! The plain lock.

use turnlock_core::model::{Claim, Wish};
use turnlock_core::{Lease, LockName};

use super::link::ScriptCall;
use super::scripts;
use crate::backend::Renewal;

pub(super) fn acquire(claim: Claim<'_>, wish: Wish) -> ScriptCall {
    let call = ScriptCall::on(&scripts::PLAIN_ACQUIRE, claim.name);
    call.arg(claim.owner.as_str()).arg(wish.lease.as_millis())
}

pub(super) fn release(claim: Claim<'_>) -> ScriptCall {
    ScriptCall::on(&scripts::PLAIN_RELEASE, claim.name).arg(claim.owner.as_str())
}

pub(super) fn renew(first: &LockName, lines: &[Renewal]) -> ScriptCall {
    let keys: Vec<_> = lines.iter().map(|line| line.name.key()).collect();
    let call = ScriptCall::on_many(&scripts::PLAIN_RENEW, first, &keys);
    lines
        .iter()
        .fold(call, |call, line| call.arg(line.owner.as_str()).arg(line.lease.map_or(0, Lease::as_millis)))
}

pub(super) fn force_unlock(name: &LockName) -> ScriptCall {
    ScriptCall::on(&scripts::PLAIN_FORCE_UNLOCK, name)
}

pub(super) fn inspect(name: &LockName) -> ScriptCall {
    ScriptCall::on(&scripts::PLAIN_INSPECT, name)
}
