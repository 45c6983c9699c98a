//! The two sides of the read-write lock.

use turnlock_core::model::{Claim, ReadWriteLockState, Wish};
use turnlock_core::{Kind, Lease, LockName};

use super::script_call::ScriptCall;
use super::scripts;
use crate::backend::Renewal;

/// Our own prefix, for the key that has the owner of a writer which waits for readers to leave.
const WAITING: &str = "turnlock_writer_waits";

pub(super) fn acquire(claim: Claim<'_>, wish: Wish) -> ScriptCall {
    let Claim { name, owner, target, under, .. } = claim;
    let waiting = name.beside(WAITING);
    let is_reader = name.kind() == Kind::Read;
    let script = if is_reader { &scripts::READ_ACQUIRE } else { &scripts::WRITE_ACQUIRE };
    let call = ScriptCall::on_all(script, name, &[&waiting]);
    let call = call.arg(owner.as_str()).arg(target).arg(wish.lease.as_millis()).arg(holds(name));
    if is_reader {
        return call.arg(under.map_or("", |under| under.as_str()));
    }
    let word = if wish.waits { ReadWriteLockState::WORD.as_millis() } else { 0 };
    call.arg(word.to_string())
}

pub(super) fn release(claim: Claim<'_>) -> ScriptCall {
    let Claim { name, owner, target, .. } = claim;
    let call = if name.kind() == Kind::Read {
        ScriptCall::on(&scripts::READ_RELEASE, name)
    } else {
        ScriptCall::on_all(&scripts::WRITE_RELEASE, name, &[&name.beside(WAITING)])
    };
    call.arg(owner.as_str()).arg(target).arg(name.channel()).arg(holds(name))
}

pub(super) fn renew(lines: &[Renewal]) -> ScriptCall {
    let keys: Vec<_> = lines.iter().map(|line| line.name.key()).collect();
    let call = ScriptCall::on_many(&scripts::READ_WRITE_RENEW, &lines[0].name, &keys);
    lines.iter().fold(call, |call, line| {
        let call = call.arg(line.owner.as_str()).arg(line.lease.map_or(0, Lease::as_millis));
        call.arg(holds(&line.name)).arg(side(&line.name))
    })
}

pub(super) fn keep(claim: Claim<'_>, lease: Lease) -> ScriptCall {
    let Claim { name, owner, .. } = claim;
    let call = ScriptCall::on(&scripts::READ_WRITE_KEEP, name).arg(owner.as_str()).arg(lease.as_millis());
    call.arg(name.channel()).arg(holds(name)).arg(side(name))
}

pub(super) fn force_unlock(name: &LockName) -> ScriptCall {
    let call = ScriptCall::on(&scripts::READ_WRITE_FORCE_UNLOCK, name);
    call.arg(side(name)).arg(name.channel()).arg(holds(name))
}

pub(super) fn inspect(name: &LockName) -> ScriptCall {
    ScriptCall::on(&scripts::READ_WRITE_INSPECT, name).arg(holds(name))
}

fn side(name: &LockName) -> &'static str {
    if name.kind() == Kind::Read { "read" } else { "write" }
}

/// What the keys of all read holds begin with.
fn holds(name: &LockName) -> String {
    name.below("")
}
