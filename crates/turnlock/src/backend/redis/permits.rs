//! The permit semaphore: permits with ids and leases.

use turnlock_core::model::{AcquireOptions, Claim, CounterOp, PermitId};
use turnlock_core::{Lease, LockName, OwnerId};

use super::script_call::ScriptCall;
use super::{requests, scripts};
use crate::backend::Renewal;

pub(super) fn acquire(claim: Claim<'_>, options: AcquireOptions) -> ScriptCall {
    let call = ScriptCall::on_all(&scripts::PERMITS_ACQUIRE, claim.name, &[&taken_key(claim.name)]);
    with_ids(call.arg(options.lease.as_millis()).arg(claim.name.channel()), claim.owner, claim.permits)
}

pub(super) fn release(claim: Claim<'_>) -> ScriptCall {
    let call = ScriptCall::on_all(&scripts::PERMITS_RELEASE, claim.name, &[&taken_key(claim.name)]);
    with_ids(call.arg(claim.name.channel()), claim.owner, claim.permits)
}

pub(super) fn renew(lines: &[Renewal]) -> ScriptCall {
    let keys: Vec<_> = lines.iter().map(|line| taken_key(&line.name)).collect();
    let call = ScriptCall::on_many(&scripts::PERMITS_RENEW, &lines[0].name, &keys);
    lines.iter().fold(call, |call, line| {
        let call = call.arg(line.lease.map_or(0, Lease::as_millis)).arg(line.permits);
        with_ids(call, &line.owner, line.permits)
    })
}

pub(super) fn unlock_after(claim: Claim<'_>, lease: Lease) -> ScriptCall {
    let call = ScriptCall::on_many(&scripts::PERMITS_UNLOCK_AFTER, claim.name, &[taken_key(claim.name)]);
    with_ids(call.arg(lease.as_millis()).arg(claim.name.channel()), claim.owner, claim.permits)
}

pub(super) fn perform(name: &LockName, op: CounterOp, request: &OwnerId) -> ScriptCall {
    requests::perform(&scripts::PERMITS_PERFORM, name, &[&taken_key(name)], op, request)
}

pub(super) fn inspect(name: &LockName) -> ScriptCall {
    ScriptCall::on_all(&scripts::PERMITS_INSPECT, name, &[&taken_key(name)])
}

/// Returns Redisson's key of the taken permits.
fn taken_key(name: &LockName) -> String {
    name.below("timeout")
}

fn with_ids(call: ScriptCall, owner: &OwnerId, permits: u32) -> ScriptCall {
    PermitId::of_hold(owner, permits).fold(call, |call, id| call.arg(id.as_bytes()))
}
