//! The table of steps: for each step and kind, the script with its keys and arguments.
//!
//! The header of a script in `lua/` describes them.

use std::fmt::Display;

use turnlock_core::model::{AcquireOptions, Claim, CounterOp, PermitId, ReadWriteLockState, Step};
use turnlock_core::{Kind, Lease, LockName, OwnerId};

use crate::lua;
use crate::script_call::ScriptCall;
use turnlock_store::Failure;

/// Redisson's prefix of the key of the last token.
pub(crate) const TOKEN: &str = "redisson_lock_token";

/// Redisson's prefix of the list of waiters.
pub(crate) const QUEUE: &str = "redisson_lock_queue";

/// Redisson's prefix of the sorted set of deadlines.
pub(crate) const DEADLINES: &str = "redisson_lock_timeout";

/// The prefix of turnlock's hash of heartbeats.
pub(crate) const HEARTBEATS: &str = "turnlock_waiters";

/// The prefix of turnlock's key for the intent of a waiting writer. Its value is the owner.
const WRITER_INTENT: &str = "turnlock_writer_waits";

/// The prefix of turnlock's request records.
pub(crate) const REQUEST: &str = "turnlock_request";

/// Returns the call for a step; or for several renewals of one renewal group, or several heartbeats.
///
/// # Errors
///
/// The kind does not have this step. Only a bug in turnlock gets here.
pub(crate) fn script_call(steps: &[Step]) -> Result<ScriptCall, Failure> {
    let first = &steps[0];
    let call = match first {
        Step::Acquire(claim, options) => acquire(claim, options),
        Step::Release(claim) => release(claim),
        Step::Renew(..) => renew(steps),
        Step::SetLease { claim, lease, .. } => set_lease(claim, *lease),
        Step::Heartbeat(..) => Some(heartbeat(steps)),
        Step::ForceUnlock(name) => force_unlock(name),
        Step::Perform(name, op, request) => perform(name, *op, request),
        Step::Forget(name, request) => Some(forget(name, request)),
        Step::Inspect(name) => Some(inspect(name)),
    };
    let unsupported = || format!("{} is not supported for a {}", label(first), first.kind().label());
    call.ok_or_else(|| Failure::unavailable(unsupported()))
}

/// Returns the name of a step, for messages.
pub(crate) fn label(step: &Step) -> &'static str {
    match step {
        Step::Acquire(..) => "acquire",
        Step::Release(_) => "release",
        Step::Renew(..) => "renew",
        Step::SetLease { .. } => "set the lease",
        Step::Heartbeat(..) => "heartbeat of a waiter",
        Step::ForceUnlock(_) => "force unlock",
        Step::Perform(_, CounterOp::SetOnce(_), _) => "set the count",
        Step::Perform(_, CounterOp::CountDown, _) => "count down",
        Step::Perform(_, CounterOp::Delete, _) => "delete",
        Step::Perform(..) => "change the count",
        Step::Forget(..) => "forget a request id",
        Step::Inspect(_) => "inspect",
    }
}

fn acquire(claim: &Claim, options: &AcquireOptions) -> Option<ScriptCall> {
    let Claim { name, owner, target, permits, under, .. } = claim;
    let lease = options.lease.as_millis();
    let hold = (owner.as_str(), *target, lease);
    let on = |script, others: &[String]| ScriptCall::on(script, name, others);
    Some(match name.kind() {
        Kind::Lock | Kind::Spin => on(&lua::LOCK_ACQUIRE, &[]).arg(hold),
        Kind::Fenced => on(&lua::FENCED_ACQUIRE, &[name.beside(TOKEN)]).arg(hold).arg(options.highest_token),
        Kind::Fair => on(&lua::FAIR_ACQUIRE, &queue_keys(name)).arg(hold).arg(u8::from(options.waits)),
        Kind::Read => {
            let under = under.as_deref().map_or("", OwnerId::as_str);
            on(&lua::READ_ACQUIRE, &[intent_key(name)]).arg(hold).arg((hold_key_prefix(name), under))
        }
        Kind::Write => {
            let intent_ms = if options.waits { ReadWriteLockState::WRITER_INTENT.as_millis() } else { 0 };
            let call = on(&lua::WRITE_ACQUIRE, &[intent_key(name)]).arg(hold);
            call.arg((hold_key_prefix(name), intent_ms.to_string()))
        }
        Kind::Plain => on(&lua::PLAIN_ACQUIRE, &[]).arg((owner.as_str(), lease)),
        Kind::Semaphore => on(&lua::SEMAPHORE_ACQUIRE, &[record_key(name, owner)]).arg(*permits),
        Kind::Permits => {
            with_ids(on(&lua::PERMITS_ACQUIRE, &[taken_key(name)]).arg((lease, channel(name))), claim)
        }
        Kind::Latch => return None,
    })
}

fn release(claim: &Claim) -> Option<ScriptCall> {
    let Claim { name, owner, target, permits, unsure, next, .. } = claim;
    let hold = (owner.as_str(), *target, channel(name));
    let on = |script, others: &[String]| ScriptCall::on(script, name, others);
    Some(match name.kind() {
        Kind::Lock | Kind::Spin | Kind::Fenced => on(&lua::LOCK_RELEASE, &[]).arg(hold),
        Kind::Fair => {
            let (next, lease) =
                next.as_ref().map_or(("", 0), |(next, lease)| (next.as_str(), lease.as_millis()));
            on(&lua::FAIR_RELEASE, &queue_keys(name)).arg(hold).arg((next, lease))
        }
        Kind::Read => on(&lua::READ_RELEASE, &[]).arg(hold).arg(hold_key_prefix(name)),
        Kind::Write => on(&lua::WRITE_RELEASE, &[intent_key(name)]).arg(hold).arg(hold_key_prefix(name)),
        Kind::Plain => on(&lua::PLAIN_RELEASE, &[]).arg(owner.as_str()),
        Kind::Semaphore => {
            let call = on(&lua::SEMAPHORE_RELEASE, &[record_key(name, owner)]);
            call.arg((*permits, u8::from(*unsure), channel(name)))
        }
        Kind::Permits => with_ids(on(&lua::PERMITS_RELEASE, &[taken_key(name)]).arg(channel(name)), claim),
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
    let key = |step: &Step| {
        let name = step.name();
        if name.kind() == Kind::Permits { taken_key(name) } else { name.key().to_owned() }
    };
    let call = ScriptCall::on_many(script, first, &steps.iter().map(key).collect::<Vec<_>>());
    Some(steps.iter().fold(call, |call, step| {
        let Step::Renew(claim, lease) = step else { return call };
        let Claim { name, owner, permits, .. } = claim;
        let lease = lease.map_or(0, Lease::as_millis);
        match name.kind() {
            Kind::Permits => with_ids(call.arg((lease, *permits)), claim),
            Kind::Read | Kind::Write => call.arg((owner.as_str(), lease, hold_key_prefix(name), side(name))),
            _ => call.arg((owner.as_str(), lease)),
        }
    }))
}

fn set_lease(claim: &Claim, lease: Lease) -> Option<ScriptCall> {
    let Claim { name, owner, .. } = claim;
    let hold = (owner.as_str(), lease.as_millis(), channel(name));
    let on = |script, others: &[String]| ScriptCall::on(script, name, others);
    Some(match name.kind() {
        Kind::Lock | Kind::Spin | Kind::Fenced => on(&lua::LOCK_UNLOCK_AFTER, &[]).arg(hold),
        Kind::Fair => on(&lua::FAIR_UNLOCK_AFTER, &queue_keys(name)).arg(hold),
        Kind::Read | Kind::Write => {
            on(&lua::READ_WRITE_UNLOCK_AFTER, &[]).arg(hold).arg((hold_key_prefix(name), side(name)))
        }
        Kind::Plain => on(&lua::PLAIN_UNLOCK_AFTER, &[]).arg(hold),
        Kind::Permits => {
            let call = ScriptCall::on_many(&lua::PERMITS_UNLOCK_AFTER, name, &[taken_key(name)]);
            with_ids(call.arg((lease.as_millis(), channel(name))), claim)
        }
        Kind::Semaphore | Kind::Latch => return None,
    })
}

/// Creates the heartbeats of all steps. Adjacent steps of one lock share its keys.
fn heartbeat(steps: &[Step]) -> ScriptCall {
    let locks = || steps.chunk_by(|one, other| one.name() == other.name());
    let keys = locks().flat_map(|waiters| {
        let name = waiters[0].name();
        let [queue, deadlines, heartbeats] = queue_keys(name);
        [name.key().to_owned(), queue, deadlines, heartbeats]
    });
    let mut call = ScriptCall::on_many(&lua::FAIR_HEARTBEAT, steps[0].name(), &keys.collect::<Vec<_>>());
    for waiters in locks() {
        call = call.arg((channel(waiters[0].name()), waiters.len()));
        for step in waiters {
            if let Step::Heartbeat(_, owner) = step {
                call = call.arg(owner.as_str());
            }
        }
    }
    call
}

fn force_unlock(name: &LockName) -> Option<ScriptCall> {
    let on = |script, others: &[String]| ScriptCall::on(script, name, others).arg(channel(name));
    Some(match name.kind() {
        Kind::Lock | Kind::Spin | Kind::Fenced => on(&lua::LOCK_FORCE_UNLOCK, &[]),
        Kind::Fair => on(&lua::FAIR_FORCE_UNLOCK, &queue_keys(name)),
        Kind::Read | Kind::Write => {
            on(&lua::READ_WRITE_FORCE_UNLOCK, &[]).arg((side(name), hold_key_prefix(name)))
        }
        Kind::Plain => on(&lua::PLAIN_FORCE_UNLOCK, &[]),
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
    Some(call.arg((operation, number, channel(name))))
}

/// Deletes a request record. Touches no other key.
fn forget(name: &LockName, request: &OwnerId) -> ScriptCall {
    ScriptCall::on_many(&lua::REQUEST_FORGET, name, &[record_key(name, request)])
}

fn inspect(name: &LockName) -> ScriptCall {
    let on = |script, others: &[String]| ScriptCall::on(script, name, others);
    match name.kind() {
        Kind::Lock | Kind::Spin => on(&lua::LOCK_INSPECT, &[]).arg(""),
        Kind::Fenced => on(&lua::LOCK_INSPECT, &[name.beside(TOKEN)]).arg("token"),
        Kind::Fair => on(&lua::LOCK_INSPECT, &[name.beside(QUEUE)]).arg("queue"),
        Kind::Read | Kind::Write => on(&lua::READ_WRITE_INSPECT, &[]).arg(hold_key_prefix(name)),
        Kind::Plain => on(&lua::PLAIN_INSPECT, &[]),
        Kind::Semaphore | Kind::Latch => on(&lua::SEMAPHORE_INSPECT, &[]),
        Kind::Permits => on(&lua::PERMITS_INSPECT, &[taken_key(name)]),
    }
}

/// Returns the channel of releases and shortened leases; empty for a kind that publishes nothing.
///
/// A waiter of a fair lock has a channel of its own, which begins with this one.
fn channel(name: &LockName) -> &str {
    if name.kind().publishes_releases() { name.common_channel() } else { "" }
}

pub(crate) fn queue_keys(name: &LockName) -> [String; 3] {
    [QUEUE, DEADLINES, HEARTBEATS].map(|prefix| name.beside(prefix))
}

/// Returns the key of the intent of a waiting writer.
pub(crate) fn intent_key(name: &LockName) -> String {
    name.beside(WRITER_INTENT)
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
pub(crate) fn taken_key(name: &LockName) -> String {
    name.below("timeout")
}

fn with_ids(call: ScriptCall, claim: &Claim) -> ScriptCall {
    PermitId::of_hold(&claim.owner, claim.permits).fold(call, |call, id| call.arg(id.as_bytes()))
}

/// Returns the key of a request record, in the slot of the number. It makes operations without owner idempotent.
pub(crate) fn record_key(name: &LockName, request: &OwnerId) -> String {
    [&name.beside(REQUEST), ":", request.as_str()].concat()
}
