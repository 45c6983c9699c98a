//! Operations on numbers without owners. Request ids make them idempotent.

use turnlock_core::model::CounterOp;
use turnlock_core::{LockName, OwnerId};

use super::script_call::ScriptCall;
use super::scripts::{self, Script};

/// Returns the key of a request record, in the slot of the number.
pub(super) fn record_key(name: &LockName, request: &OwnerId) -> String {
    [&name.beside("turnlock_request"), ":", request.as_str()].concat()
}

/// Creates a call of an operation. All its scripts take the same arguments; a script that does not support
/// the operation replies with an error.
pub(super) fn perform(
    script: &'static Script,
    name: &LockName,
    others: &[&str],
    op: CounterOp,
    request: &OwnerId,
) -> ScriptCall {
    let record_key = record_key(name, request);
    let others = [&[record_key.as_str()], others].concat();
    let (operation, number) = match op {
        CounterOp::SetOnce(number) => ("set_once", number.to_string()),
        CounterOp::Add(number) => ("add", number.to_string()),
        CounterOp::Release(number) => ("release", number.to_string()),
        CounterOp::SetTotal(number) => ("set_total", number.to_string()),
        CounterOp::Drain => ("drain", String::new()),
        CounterOp::CountDown => ("count_down", String::new()),
        CounterOp::Delete => ("delete", String::new()),
    };
    ScriptCall::on_all(script, name, &others).arg(operation).arg(number).arg(name.channel())
}

/// Deletes a request record. Touches no other key.
pub(super) fn forget(name: &LockName, request: &OwnerId) -> ScriptCall {
    ScriptCall::on_many(&scripts::REQUEST_FORGET, name, &[record_key(name, request)])
}
