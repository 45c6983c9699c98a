//! The fair lock: Redisson's hash, list and sorted set, and turnlock's hash of heartbeats.

use turnlock_core::model::{AcquireOptions, Claim};
use turnlock_core::{Lease, LockName};

use super::script_call::ScriptCall;
use super::scripts::{self, Script};
use crate::backend::FairWaiter;

/// Redisson's prefix of the list of waiters.
pub(super) const QUEUE: &str = "redisson_lock_queue";

/// Redisson's prefix of the sorted set of deadlines.
pub(super) const DEADLINES: &str = "redisson_lock_timeout";

/// The prefix of turnlock's hash of heartbeats.
pub(super) const HEARTBEATS: &str = "turnlock_waiters";

pub(super) fn acquire(claim: Claim<'_>, options: AcquireOptions) -> ScriptCall {
    let call = queue_call(&scripts::FAIR_ACQUIRE, claim.name);
    call.arg(claim.owner.as_str())
        .arg(claim.target)
        .arg(options.lease.as_millis())
        .arg(u8::from(options.waits))
}

pub(super) fn release(claim: Claim<'_>) -> ScriptCall {
    let call = queue_call(&scripts::FAIR_RELEASE, claim.name);
    call.arg(claim.owner.as_str()).arg(claim.target).arg(claim.name.common_channel())
}

pub(super) fn unlock_after(claim: Claim<'_>, lease: Lease) -> ScriptCall {
    let call = queue_call(&scripts::FAIR_UNLOCK_AFTER, claim.name);
    call.arg(claim.owner.as_str()).arg(lease.as_millis()).arg(claim.name.common_channel())
}

pub(super) fn heartbeat(waiters: &[FairWaiter]) -> ScriptCall {
    let keys = |FairWaiter { name, .. }: &FairWaiter| {
        let [queue, deadlines, heartbeats] = queue_keys(name);
        [name.key().to_owned(), queue, deadlines, heartbeats]
    };
    let keys: Vec<_> = waiters.iter().flat_map(keys).collect();
    let call = ScriptCall::on_many(&scripts::FAIR_HEARTBEAT, &waiters[0].name, &keys);
    waiters
        .iter()
        .fold(call, |call, waiter| call.arg(waiter.owner.as_str()).arg(waiter.name.common_channel()))
}

pub(super) fn force_unlock(name: &LockName) -> ScriptCall {
    queue_call(&scripts::FAIR_FORCE_UNLOCK, name).arg(name.common_channel())
}

pub(super) fn inspect(name: &LockName) -> ScriptCall {
    ScriptCall::on_all(&scripts::FAIR_INSPECT, name, &[&name.beside(QUEUE)])
}

fn queue_call(script: &'static Script, name: &LockName) -> ScriptCall {
    let queue_keys = queue_keys(name);
    ScriptCall::on_all(script, name, &queue_keys.each_ref().map(String::as_str))
}

fn queue_keys(name: &LockName) -> [String; 3] {
    [QUEUE, DEADLINES, HEARTBEATS].map(|prefix| name.beside(prefix))
}
