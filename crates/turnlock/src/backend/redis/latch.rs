//! The count-down latch.

use turnlock_core::model::CounterOp;
use turnlock_core::{LockName, OwnerId};

use super::script_call::ScriptCall;
use super::{requests, scripts, semaphore};

pub(super) fn perform(name: &LockName, op: CounterOp, request: &OwnerId) -> ScriptCall {
    requests::perform(&scripts::LATCH_PERFORM, name, &[], op, request)
}

pub(super) fn inspect(name: &LockName) -> ScriptCall {
    semaphore::inspect(name)
}
