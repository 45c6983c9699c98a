//! The permit semaphore: permits with ids and leases.

use turnlock_core::model::{Claim, Deed, PermitId, Wish};
use turnlock_core::{Lease, LockName, OwnerId};

use super::script_call::ScriptCall;
use super::{requests, scripts};
use crate::backend::Renewal;

pub(super) fn acquire(claim: Claim<'_>, wish: Wish) -> ScriptCall {
    let call = ScriptCall::on_all(&scripts::PERMITS_ACQUIRE, claim.name, &[&taken(claim.name)]);
    with_ids(call.arg(wish.lease.as_millis()).arg(claim.name.channel()), claim.owner, claim.permits)
}

pub(super) fn release(claim: Claim<'_>) -> ScriptCall {
    let call = ScriptCall::on_all(&scripts::PERMITS_RELEASE, claim.name, &[&taken(claim.name)]);
    with_ids(call.arg(claim.name.channel()), claim.owner, claim.permits)
}

pub(super) fn renew(lines: &[Renewal]) -> ScriptCall {
    let keys: Vec<_> = lines.iter().map(|line| taken(&line.name)).collect();
    let call = ScriptCall::on_many(&scripts::PERMITS_RENEW, &lines[0].name, &keys);
    lines.iter().fold(call, |call, line| {
        let call = call.arg(line.lease.map_or(0, Lease::as_millis)).arg(line.permits);
        with_ids(call, &line.owner, line.permits)
    })
}

pub(super) fn keep(claim: Claim<'_>, lease: Lease) -> ScriptCall {
    let call = ScriptCall::on_many(&scripts::PERMITS_KEEP, claim.name, &[taken(claim.name)]);
    with_ids(call.arg(lease.as_millis()).arg(claim.name.channel()), claim.owner, claim.permits)
}

pub(super) fn perform(name: &LockName, deed: Deed, request: &OwnerId) -> ScriptCall {
    requests::perform(&scripts::PERMITS_PERFORM, name, &[&taken(name)], deed, request)
}

pub(super) fn inspect(name: &LockName) -> ScriptCall {
    ScriptCall::on_all(&scripts::PERMITS_INSPECT, name, &[&taken(name)])
}

/// Redisson's key of the permits that are taken.
fn taken(name: &LockName) -> String {
    name.below("timeout")
}

fn with_ids(call: ScriptCall, owner: &OwnerId, permits: u32) -> ScriptCall {
    PermitId::of_hold(owner, permits).fold(call, |call, id| call.arg(id.as_bytes()))
}
