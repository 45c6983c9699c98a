//! Steps on numbers without owners: what counts once is told by a request's id.

use turnlock_core::model::Deed;
use turnlock_core::{LockName, OwnerId};

use super::script_call::ScriptCall;
use super::scripts::{self, Script};

/// The key in which the outcome of a request is remembered, in the slot of the number.
pub(super) fn memory(name: &LockName, request: &OwnerId) -> String {
    [&name.beside("turnlock_request"), ":", request.as_str()].concat()
}

/// A deed by one of the scripts for that, which all take their arguments in the same way. A script that does not have the
/// deed says so in its reply.
pub(super) fn perform(
    script: &'static Script,
    name: &LockName,
    beside: &[&str],
    deed: Deed,
    request: &OwnerId,
) -> ScriptCall {
    let memory = memory(name, request);
    let beside = [&[memory.as_str()], beside].concat();
    let (word, number) = match deed {
        Deed::SetOnce(number) => ("set_once", number.to_string()),
        Deed::Add(number) => ("add", number.to_string()),
        Deed::Release(number) => ("release", number.to_string()),
        Deed::SetTotal(number) => ("set_total", number.to_string()),
        Deed::Drain => ("drain", String::new()),
        Deed::CountDown => ("count_down", String::new()),
        Deed::Delete => ("delete", String::new()),
    };
    ScriptCall::on_all(script, name, &beside).arg(word).arg(number).arg(name.channel())
}

/// Touches no key but the memory.
pub(super) fn forget(name: &LockName, request: &OwnerId) -> ScriptCall {
    ScriptCall::on_many(&scripts::REQUEST_FORGET, name, &[memory(name, request)])
}
