//! The two sides of the read-write lock.

use turnlock_core::model::{AcquireOptions, Claim, ReadWriteLockState};
use turnlock_core::{Kind, Lease, LockName};

use super::script_call::ScriptCall;
use super::scripts;
use crate::backend::Renewal;

/// The prefix of turnlock's key for the intent of a waiting writer. Its value is the owner.
const WRITER_INTENT: &str = "turnlock_writer_waits";

pub(super) fn acquire(claim: Claim<'_>, options: AcquireOptions) -> ScriptCall {
    let Claim { name, owner, target, under, .. } = claim;
    let intent = name.beside(WRITER_INTENT);
    let is_reader = name.kind() == Kind::Read;
    let script = if is_reader { &scripts::READ_ACQUIRE } else { &scripts::WRITE_ACQUIRE };
    let call = ScriptCall::on_all(script, name, &[&intent]);
    let call = call.arg(owner.as_str()).arg(target).arg(options.lease.as_millis()).arg(hold_key_prefix(name));
    if is_reader {
        return call.arg(under.map_or("", |under| under.as_str()));
    }
    let intent_ms = if options.waits { ReadWriteLockState::WRITER_INTENT.as_millis() } else { 0 };
    call.arg(intent_ms.to_string())
}

pub(super) fn release(claim: Claim<'_>) -> ScriptCall {
    let Claim { name, owner, target, .. } = claim;
    let call = if name.kind() == Kind::Read {
        ScriptCall::on(&scripts::READ_RELEASE, name)
    } else {
        ScriptCall::on_all(&scripts::WRITE_RELEASE, name, &[&name.beside(WRITER_INTENT)])
    };
    call.arg(owner.as_str()).arg(target).arg(name.channel()).arg(hold_key_prefix(name))
}

pub(super) fn renew(lines: &[Renewal]) -> ScriptCall {
    let keys: Vec<_> = lines.iter().map(|line| line.name.key()).collect();
    let call = ScriptCall::on_many(&scripts::READ_WRITE_RENEW, &lines[0].name, &keys);
    lines.iter().fold(call, |call, line| {
        let call = call.arg(line.owner.as_str()).arg(line.lease.map_or(0, Lease::as_millis));
        call.arg(hold_key_prefix(&line.name)).arg(side(&line.name))
    })
}

pub(super) fn unlock_after(claim: Claim<'_>, lease: Lease) -> ScriptCall {
    let Claim { name, owner, .. } = claim;
    let call =
        ScriptCall::on(&scripts::READ_WRITE_UNLOCK_AFTER, name).arg(owner.as_str()).arg(lease.as_millis());
    call.arg(name.channel()).arg(hold_key_prefix(name)).arg(side(name))
}

pub(super) fn force_unlock(name: &LockName) -> ScriptCall {
    let call = ScriptCall::on(&scripts::READ_WRITE_FORCE_UNLOCK, name);
    call.arg(side(name)).arg(name.channel()).arg(hold_key_prefix(name))
}

pub(super) fn inspect(name: &LockName) -> ScriptCall {
    ScriptCall::on(&scripts::READ_WRITE_INSPECT, name).arg(hold_key_prefix(name))
}

fn side(name: &LockName) -> &'static str {
    if name.kind() == Kind::Read { "read" } else { "write" }
}

/// Returns the prefix of the keys of read holds.
fn hold_key_prefix(name: &LockName) -> String {
    name.below("")
}
