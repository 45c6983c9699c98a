//! The reentrant lock, and the spin lock and fenced lock, which share its key.

use turnlock_core::model::{AcquireOptions, Claim};
use turnlock_core::{Kind, Lease, LockName};

use super::script_call::ScriptCall;
use super::scripts::{self, Script};
use crate::backend::Renewal;

/// Redisson's prefix of the key of the last token.
const TOKEN: &str = "redisson_lock_token";

pub(super) fn acquire(claim: Claim<'_>, options: AcquireOptions) -> ScriptCall {
    let call = match claim.name.kind() {
        Kind::Fenced => {
            ScriptCall::on_all(&scripts::FENCED_ACQUIRE, claim.name, &[&claim.name.beside(TOKEN)])
        }
        _ => ScriptCall::on(&scripts::LOCK_ACQUIRE, claim.name),
    };
    let call = call.arg(claim.owner.as_str()).arg(claim.target).arg(options.lease.as_millis());
    if claim.name.kind() == Kind::Fenced { call.arg(options.highest_token) } else { call }
}

pub(super) fn release(claim: Claim<'_>) -> ScriptCall {
    let call = ScriptCall::on(&scripts::LOCK_RELEASE, claim.name);
    call.arg(claim.owner.as_str()).arg(claim.target).arg(channel(claim.name))
}

/// Also for fair locks, whose hold has the same format.
pub(super) fn renew(lines: &[Renewal]) -> ScriptCall {
    renew_by(&scripts::LOCK_RENEW, lines)
}

/// Creates a renewal with a script that takes key, owner and lease per line.
pub(super) fn renew_by(script: &'static Script, lines: &[Renewal]) -> ScriptCall {
    let keys: Vec<_> = lines.iter().map(|line| line.name.key()).collect();
    let call = ScriptCall::on_many(script, &lines[0].name, &keys);
    lines
        .iter()
        .fold(call, |call, line| call.arg(line.owner.as_str()).arg(line.lease.map_or(0, Lease::as_millis)))
}

pub(super) fn unlock_after(claim: Claim<'_>, lease: Lease) -> ScriptCall {
    let call = ScriptCall::on(&scripts::LOCK_UNLOCK_AFTER, claim.name);
    call.arg(claim.owner.as_str()).arg(lease.as_millis()).arg(channel(claim.name))
}

pub(super) fn force_unlock(name: &LockName) -> ScriptCall {
    ScriptCall::on(&scripts::LOCK_FORCE_UNLOCK, name).arg(channel(name))
}

pub(super) fn inspect(name: &LockName) -> ScriptCall {
    match name.kind() {
        Kind::Fenced => ScriptCall::on_all(&scripts::LOCK_INSPECT, name, &[&name.beside(TOKEN)]),
        _ => ScriptCall::on(&scripts::LOCK_INSPECT, name),
    }
}

/// Returns the channel of releases and shortened leases; empty for a spin lock, which publishes nothing.
fn channel(name: &LockName) -> &str {
    if name.kind().publishes_releases() { name.channel() } else { "" }
}
