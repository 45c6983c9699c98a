//! The count-down latch.

use turnlock_core::model::Deed;
use turnlock_core::{LockName, OwnerId};

use super::script_call::ScriptCall;
use super::{requests, scripts, semaphore};

pub(super) fn perform(name: &LockName, deed: Deed, request: &OwnerId) -> ScriptCall {
    requests::perform(&scripts::LATCH_PERFORM, name, &[], deed, request)
}

pub(super) fn inspect(name: &LockName) -> ScriptCall {
    semaphore::inspect(name)
}
