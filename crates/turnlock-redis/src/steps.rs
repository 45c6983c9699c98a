//! The table of steps: for each step and kind, the script with its keys and arguments.
//!
//! The header of a script in `lua/` describes them.

use std::borrow::Cow;
use std::fmt::Display;

use turnlock_core::model::{AcquireOptions, Claim, CounterOp, PermitId, ReadWriteLockState, Step};
use turnlock_core::{Kind, Lease, LockName, OwnerId};

use crate::lua::{self, Script};
use crate::script_call::ScriptCall;
use turnlock_store::Failure;

/// Redisson's prefix of the key of the last token.
const TOKEN: &str = "redisson_lock_token";

/// Redisson's prefix of the list of waiters.
pub(crate) const QUEUE: &str = "redisson_lock_queue";

/// Redisson's prefix of the sorted set of deadlines.
pub(crate) const DEADLINES: &str = "redisson_lock_timeout";

/// The prefix of turnlock's hash of heartbeats.
pub(crate) const HEARTBEATS: &str = "turnlock_waiters";

/// The prefix of turnlock's key for the intent of a waiting writer. Its value is the owner.
const WRITER_INTENT: &str = "turnlock_writer_waits";

/// Returns the call for a step; or for several renewals of one renewal group, or several heartbeats.
///
/// # Errors
///
/// The kind does not have this step. Only a bug in turnlock gets here.
pub(crate) fn script_call(steps: &[Step]) -> Result<ScriptCall, Failure> {
    let first = &steps[0];
    let (label, call) = match first {
        Step::Acquire(claim, options) => ("acquire", acquire(claim, options)),
        Step::Release(claim) => ("release", release(claim)),
        Step::Renew(..) => ("renew", renew(steps)),
        Step::SetLease { claim, lease, .. } => ("unlock_after", set_lease(claim, *lease)),
        Step::Heartbeat(..) => ("heartbeat", Some(heartbeat(steps))),
        Step::ForceUnlock(name) => ("force_unlock", force_unlock(name)),
        Step::Perform(name, op, request) => ("a counter operation", perform(name, *op, request)),
        Step::Forget(name, request) => ("forget", Some(forget(name, request))),
        Step::Inspect(name) => ("inspect", Some(inspect(name))),
    };
    let unsupported = || format!("{label} is not supported for a {}", first.kind().label());
    call.ok_or_else(|| Failure::unavailable(unsupported()))
}

fn acquire(claim: &Claim, options: &AcquireOptions) -> Option<ScriptCall> {
    let Claim { name, owner, target, permits, under, .. } = claim;
    let lease = options.lease.as_millis();
    let hold = (owner.as_str(), *target, lease);
    Some(match name.kind() {
        Kind::Lock | Kind::Spin => ScriptCall::on(&lua::LOCK_ACQUIRE, name, &[]).arg(hold),
        Kind::Fenced => {
            let call = ScriptCall::on(&lua::FENCED_ACQUIRE, name, &[name.beside(TOKEN)]);
            call.arg(hold).arg(options.highest_token)
        }
        Kind::Fair => {
            let call = ScriptCall::on(&lua::FAIR_ACQUIRE, name, &queue_keys(name));
            call.arg(hold).arg(u8::from(options.waits))
        }
        Kind::Read => {
            let call = ScriptCall::on(&lua::READ_ACQUIRE, name, &[name.beside(WRITER_INTENT)]);
            call.arg(hold).arg((hold_key_prefix(name), under.as_ref().map_or("", OwnerId::as_str)))
        }
        Kind::Write => {
            let call = ScriptCall::on(&lua::WRITE_ACQUIRE, name, &[name.beside(WRITER_INTENT)]);
            let intent_ms = if options.waits { ReadWriteLockState::WRITER_INTENT.as_millis() } else { 0 };
            call.arg(hold).arg((hold_key_prefix(name), intent_ms.to_string()))
        }
        Kind::Plain => ScriptCall::on(&lua::PLAIN_ACQUIRE, name, &[]).arg((owner.as_str(), lease)),
        Kind::Semaphore => {
            ScriptCall::on(&lua::SEMAPHORE_ACQUIRE, name, &[record_key(name, owner)]).arg(*permits)
        }
        Kind::Permits => {
            let call = ScriptCall::on(&lua::PERMITS_ACQUIRE, name, &[taken_key(name)]);
            with_ids(call.arg((lease, name.channel())), claim)
        }
        Kind::Latch => return None,
    })
}

fn release(claim: &Claim) -> Option<ScriptCall> {
    let Claim { name, owner, target, permits, unsure, .. } = claim;
    let hold = (owner.as_str(), *target);
    Some(match name.kind() {
        Kind::Lock | Kind::Spin | Kind::Fenced => {
            ScriptCall::on(&lua::LOCK_RELEASE, name, &[]).arg(hold).arg(channel(name))
        }
        Kind::Fair => {
            ScriptCall::on(&lua::FAIR_RELEASE, name, &queue_keys(name)).arg(hold).arg(name.common_channel())
        }
        Kind::Read => {
            let call = ScriptCall::on(&lua::READ_RELEASE, name, &[]);
            call.arg(hold).arg((name.channel(), hold_key_prefix(name)))
        }
        Kind::Write => {
            let call = ScriptCall::on(&lua::WRITE_RELEASE, name, &[name.beside(WRITER_INTENT)]);
            call.arg(hold).arg((name.channel(), hold_key_prefix(name)))
        }
        Kind::Plain => ScriptCall::on(&lua::PLAIN_RELEASE, name, &[]).arg(owner.as_str()),
        Kind::Semaphore => {
            let call = ScriptCall::on(&lua::SEMAPHORE_RELEASE, name, &[record_key(name, owner)]);
            call.arg((*permits, u8::from(*unsure), name.channel()))
        }
        Kind::Permits => {
            let call = ScriptCall::on(&lua::PERMITS_RELEASE, name, &[taken_key(name)]);
            with_ids(call.arg(name.channel()), claim)
        }
        Kind::Latch => return None,
    })
}

/// Creates a renewal of all steps. `None` in place of a lease is sent as 0.
fn renew(steps: &[Step]) -> Option<ScriptCall> {
    let first = steps[0].name();
    let script = match first.kind() {
        // The hold of a fair lock has the same format.
        Kind::Lock | Kind::Spin | Kind::Fenced | Kind::Fair => &lua::LOCK_RENEW,
        Kind::Read | Kind::Write => &lua::READ_WRITE_RENEW,
        Kind::Plain => &lua::PLAIN_RENEW,
        Kind::Permits => &lua::PERMITS_RENEW,
        Kind::Semaphore | Kind::Latch => return None,
    };
    let is_permits = first.kind() == Kind::Permits;
    let key = |step| {
        let name = Step::name(step);
        if is_permits { Cow::Owned(taken_key(name)) } else { Cow::Borrowed(name.key()) }
    };
    let keys: Vec<_> = steps.iter().map(key).collect();
    let renewals = steps.iter().filter_map(|step| match step {
        Step::Renew(claim, lease) => Some((claim, lease.map_or(0, Lease::as_millis))),
        _ => None,
    });
    let call = ScriptCall::on_many(script, first, &keys);
    Some(renewals.fold(call, |call, (claim, lease)| {
        let Claim { name, owner, permits, .. } = claim;
        match name.kind() {
            Kind::Permits => with_ids(call.arg((lease, *permits)), claim),
            Kind::Read | Kind::Write => call.arg((owner.as_str(), lease, hold_key_prefix(name), side(name))),
            _ => call.arg((owner.as_str(), lease)),
        }
    }))
}

fn set_lease(claim: &Claim, lease: Lease) -> Option<ScriptCall> {
    let Claim { name, owner, .. } = claim;
    let hold = (owner.as_str(), lease.as_millis());
    Some(match name.kind() {
        Kind::Lock | Kind::Spin | Kind::Fenced => {
            ScriptCall::on(&lua::LOCK_UNLOCK_AFTER, name, &[]).arg(hold).arg(channel(name))
        }
        Kind::Fair => {
            let call = ScriptCall::on(&lua::FAIR_UNLOCK_AFTER, name, &queue_keys(name));
            call.arg(hold).arg(name.common_channel())
        }
        Kind::Read | Kind::Write => {
            let call = ScriptCall::on(&lua::READ_WRITE_UNLOCK_AFTER, name, &[]);
            call.arg(hold).arg((name.channel(), hold_key_prefix(name), side(name)))
        }
        Kind::Plain => ScriptCall::on(&lua::PLAIN_UNLOCK_AFTER, name, &[]).arg(hold),
        Kind::Permits => {
            let call = ScriptCall::on_many(&lua::PERMITS_UNLOCK_AFTER, name, &[taken_key(name)]);
            with_ids(call.arg((lease.as_millis(), name.channel())), claim)
        }
        Kind::Semaphore | Kind::Latch => return None,
    })
}

fn heartbeat(steps: &[Step]) -> ScriptCall {
    let keys = steps.iter().map(Step::name).flat_map(|name| {
        let [queue, deadlines, heartbeats] = queue_keys(name);
        [name.key().to_owned(), queue, deadlines, heartbeats]
    });
    let call = ScriptCall::on_many(&lua::FAIR_HEARTBEAT, steps[0].name(), &keys.collect::<Vec<_>>());
    steps.iter().fold(call, |call, step| match step {
        Step::Heartbeat(name, owner) => call.arg((owner.as_str(), name.common_channel())),
        _ => call,
    })
}

fn force_unlock(name: &LockName) -> Option<ScriptCall> {
    Some(match name.kind() {
        Kind::Lock | Kind::Spin | Kind::Fenced => {
            ScriptCall::on(&lua::LOCK_FORCE_UNLOCK, name, &[]).arg(channel(name))
        }
        Kind::Fair => {
            ScriptCall::on(&lua::FAIR_FORCE_UNLOCK, name, &queue_keys(name)).arg(name.common_channel())
        }
        Kind::Read | Kind::Write => {
            let call = ScriptCall::on(&lua::READ_WRITE_FORCE_UNLOCK, name, &[]);
            call.arg((side(name), name.channel(), hold_key_prefix(name)))
        }
        Kind::Plain => ScriptCall::on(&lua::PLAIN_FORCE_UNLOCK, name, &[]),
        Kind::Semaphore | Kind::Permits | Kind::Latch => return None,
    })
}

/// All these scripts take the same arguments. One that does not support the operation replies with an error.
fn perform(name: &LockName, op: CounterOp, request: &OwnerId) -> Option<ScriptCall> {
    let record_key = record_key(name, request);
    let call = match name.kind() {
        Kind::Semaphore => ScriptCall::on(&lua::SEMAPHORE_PERFORM, name, &[record_key]),
        Kind::Permits => ScriptCall::on(&lua::PERMITS_PERFORM, name, &[record_key, taken_key(name)]),
        Kind::Latch => ScriptCall::on(&lua::LATCH_PERFORM, name, &[record_key]),
        _ => return None,
    };
    let text = |number: &dyn Display| number.to_string();
    let (operation, number) = match op {
        CounterOp::SetOnce(number) => ("set_once", text(&number)),
        CounterOp::Add(number) => ("add", text(&number)),
        CounterOp::Release(number) => ("release", text(&number)),
        CounterOp::SetTotal(number) => ("set_total", text(&number)),
        CounterOp::Drain => ("drain", String::new()),
        CounterOp::CountDown => ("count_down", String::new()),
        CounterOp::Delete => ("delete", String::new()),
    };
    Some(call.arg((operation, number, name.channel())))
}

/// Deletes a request record. Touches no other key.
fn forget(name: &LockName, request: &OwnerId) -> ScriptCall {
    ScriptCall::on_many(&lua::REQUEST_FORGET, name, &[record_key(name, request)])
}

fn inspect(name: &LockName) -> ScriptCall {
    let on = |script: &'static Script, others: &[String]| ScriptCall::on(script, name, others);
    match name.kind() {
        Kind::Lock | Kind::Spin => on(&lua::LOCK_INSPECT, &[]),
        Kind::Fenced => on(&lua::LOCK_INSPECT, &[name.beside(TOKEN)]),
        Kind::Fair => on(&lua::FAIR_INSPECT, &[name.beside(QUEUE)]),
        Kind::Read | Kind::Write => on(&lua::READ_WRITE_INSPECT, &[]).arg(hold_key_prefix(name)),
        Kind::Plain => on(&lua::PLAIN_INSPECT, &[]),
        Kind::Semaphore | Kind::Latch => on(&lua::SEMAPHORE_INSPECT, &[]),
        Kind::Permits => on(&lua::PERMITS_INSPECT, &[taken_key(name)]),
    }
}

/// Returns the channel of releases and shortened leases; empty for a spin lock, which publishes nothing.
fn channel(name: &LockName) -> &str {
    if name.kind().publishes_releases() { name.channel() } else { "" }
}

fn queue_keys(name: &LockName) -> [String; 3] {
    [QUEUE, DEADLINES, HEARTBEATS].map(|prefix| name.beside(prefix))
}

/// Returns the side of a read-write lock.
fn side(name: &LockName) -> &'static str {
    if name.kind() == Kind::Read { "read" } else { "write" }
}

/// Returns the prefix of the keys of read holds.
fn hold_key_prefix(name: &LockName) -> String {
    name.below("")
}

/// Returns Redisson's key of the taken permits.
fn taken_key(name: &LockName) -> String {
    name.below("timeout")
}

fn with_ids(call: ScriptCall, claim: &Claim) -> ScriptCall {
    PermitId::of_hold(&claim.owner, claim.permits).fold(call, |call, id| call.arg(id.as_bytes()))
}

/// Returns the key of a request record, in the slot of the number. It makes operations without owner idempotent.
pub(crate) fn record_key(name: &LockName, request: &OwnerId) -> String {
    [&name.beside("turnlock_request"), ":", request.as_str()].concat()
}
