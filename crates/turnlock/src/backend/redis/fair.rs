//! The fair lock: Redisson's hash, list and sorted set, and a hash of ours with the signs of life of our waiters.

use turnlock_core::model::{Claim, Wish};
use turnlock_core::{Lease, LockName};

use super::script_call::ScriptCall;
use super::scripts::{self, Script};
use crate::backend::Waiter;

/// Redisson's prefix of the list of those who wait.
pub(super) const QUEUE: &str = "redisson_lock_queue";

/// Redisson's prefix of the sorted set of their deadlines.
pub(super) const DEADLINES: &str = "redisson_lock_timeout";

/// The prefix of our hash of signs of life.
pub(super) const SIGNS: &str = "turnlock_waiters";

pub(super) fn acquire(claim: Claim<'_>, wish: Wish) -> ScriptCall {
    let call = on_queue(&scripts::FAIR_ACQUIRE, claim.name);
    call.arg(claim.owner.as_str()).arg(claim.target).arg(wish.lease.as_millis()).arg(u8::from(wish.waits))
}

pub(super) fn release(claim: Claim<'_>) -> ScriptCall {
    let call = on_queue(&scripts::FAIR_RELEASE, claim.name);
    call.arg(claim.owner.as_str()).arg(claim.target).arg(claim.name.common_channel())
}

pub(super) fn keep(claim: Claim<'_>, lease: Lease) -> ScriptCall {
    let call = on_queue(&scripts::FAIR_KEEP, claim.name);
    call.arg(claim.owner.as_str()).arg(lease.as_millis()).arg(claim.name.common_channel())
}

pub(super) fn attend(waiters: &[Waiter]) -> ScriptCall {
    let keys = |Waiter { name, .. }: &Waiter| {
        let [queue, deadlines, signs] = beside(name);
        [name.key().to_owned(), queue, deadlines, signs]
    };
    let keys: Vec<_> = waiters.iter().flat_map(keys).collect();
    let call = ScriptCall::on_many(&scripts::FAIR_ATTEND, &waiters[0].name, &keys);
    waiters
        .iter()
        .fold(call, |call, waiter| call.arg(waiter.owner.as_str()).arg(waiter.name.common_channel()))
}

pub(super) fn force_unlock(name: &LockName) -> ScriptCall {
    on_queue(&scripts::FAIR_FORCE_UNLOCK, name).arg(name.common_channel())
}

pub(super) fn inspect(name: &LockName) -> ScriptCall {
    ScriptCall::on_all(&scripts::FAIR_INSPECT, name, &[&name.beside(QUEUE)])
}

fn on_queue(script: &'static Script, name: &LockName) -> ScriptCall {
    let beside = beside(name);
    ScriptCall::on_all(script, name, &beside.each_ref().map(String::as_str))
}

fn beside(name: &LockName) -> [String; 3] {
    [QUEUE, DEADLINES, SIGNS].map(|prefix| name.beside(prefix))
}
