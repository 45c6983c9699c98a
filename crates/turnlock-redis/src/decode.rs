//! Decodes the replies of the scripts.

use std::borrow::Cow;
use std::str::FromStr;
use std::time::Duration;

use redis::{FromRedisValue, Value};
use turnlock_core::OwnerId;
use turnlock_core::model::{
    Acquired, HolderSnapshot, QueuePosition, Released, Renewed, Reply as StepValue, Role, Snapshot,
};

use crate::failure;
use crate::lua::Action;
use crate::reply::Reply;
use crate::script_call::ScriptCall;
use turnlock_store::{Failure, FailureKind, StepReply};

/// Decodes the reply to a call of one step.
///
/// # Errors
///
/// Too few replicas acknowledged, which is a failure of a step that took effect on the master; or the script never
/// replies this.
pub(crate) fn step(call: &ScriptCall, reply: Reply) -> Result<StepReply<StepValue>, Failure> {
    let Reply { value, sent, replicas } = reply;
    let replicas = replicas.map_err(|kind| Failure::unacknowledged(kind, sent))?;
    let key = call.lock.key();
    let decoded = match (call.action(), &value) {
        (Action::Acquire, value) => acquired(value).map(StepValue::Acquired),
        (Action::Release, value) => released(value).map(StepValue::Released),
        (Action::SetLease, Value::Int(line @ 0..=1)) => renewed(*line).map(StepValue::Renewed),
        (Action::ForceUnlock, Value::Int(held)) => Some(StepValue::ForceUnlocked(*held == 1)),
        (Action::Perform, Value::Int(number)) => Some(StepValue::Number(*number)),
        (Action::Forget, Value::Int(_)) => Some(StepValue::Forgotten),
        (Action::Inspect, value) => {
            let not_a_lock = |found| FailureKind::NotALock { key: key.to_owned(), found };
            let snapshot = snapshot(script_reply(value)?);
            Some(StepValue::Snapshot(snapshot.map_err(|found| Failure::refused(not_a_lock(found)))?))
        }
        _ => None,
    };
    // The number of subscribers that received a release; `None` if nothing was published.
    let notified = match (call.action(), &value) {
        (Action::Release, Value::Int(receivers)) => u32::try_from(*receivers).ok(),
        _ => None,
    };
    let value = decoded.ok_or_else(|| failure::unexpected_reply("a script", &value))?;
    Ok(StepReply { replicas, notified, ..StepReply::new(value, sent) })
}

/// Converts the reply of a script to the type that the script always replies with.
pub(crate) fn script_reply<T: FromRedisValue>(value: &Value) -> Result<T, Failure> {
    redis::from_redis_value_ref(value).map_err(|_| failure::unexpected_reply("a script", value))
}

/// Decodes the outcomes of a batch of renewals or heartbeats.
pub(crate) fn batch(
    call: &ScriptCall,
    Reply { value, sent, replicas }: Reply,
) -> Result<StepReply<Vec<Option<StepValue>>>, Failure> {
    let outcome = match call.action() {
        Action::Renew => |line| renewed(line).map(StepValue::Renewed),
        _ => |line| position(line).map(StepValue::Position),
    };
    let Value::Array(lines) = value else { return Err(failure::unexpected_reply("a script", &value)) };
    let lines = lines.into_iter().map(|line| if let Value::Int(line) = line { outcome(line) } else { None });
    let (mut value, mut reached) = (lines.collect::<Vec<_>>(), 0);
    match replicas {
        Ok(replicas) => reached = replicas,
        Err(kind) => {
            if let FailureKind::NotEnoughReplicas { reached: acknowledged, .. } = kind {
                reached = acknowledged;
            }
            // A lost hold stays lost. A renewed one may be gone if a replica is promoted, so it has no outcome.
            let is_gone = |line: &&mut _| matches!(line, Some(StepValue::Renewed(Renewed::NotHeld)));
            value.iter_mut().filter(|line| !is_gone(line)).for_each(|line| *line = None);
        }
    }
    Ok(StepReply { replicas: reached, ..StepReply::new(value, sent) })
}

// In the following functions, `None` is a reply that no script gives.

fn acquired(value: &Value) -> Option<Acquired> {
    match value {
        Value::Nil => Some(Acquired::Granted),
        Value::Int(-3) => Some(Acquired::Gone),
        Value::Int(-4) => Some(Acquired::Queued),
        Value::Int(ttl @ -1..) => Some(Acquired::Busy { ttl: millis(*ttl) }),
        Value::Array(_) => {
            let (token,) = redis::from_redis_value_ref(value).ok()?;
            Some(Acquired::GrantedWith { token })
        }
        _ => None,
    }
}

fn released(value: &Value) -> Option<Released> {
    match value {
        Value::Nil => Some(Released::NotHeld),
        Value::Int(-1) => Some(Released::StillHeld),
        Value::Int(-2) => {
            tracing::warn!("release not published, the Redis user may not publish: waiters poll");
            Some(Released::Freed)
        }
        Value::Int(-3) => Some(Released::PassedOn),
        Value::Int(0..) => Some(Released::Freed),
        _ => None,
    }
}

fn renewed(line: i64) -> Option<Renewed> {
    match line {
        1 => Some(Renewed::Renewed),
        2 => Some(Renewed::Longer),
        0 => Some(Renewed::NotHeld),
        _ => None,
    }
}

fn position(line: i64) -> Option<QueuePosition> {
    match line {
        2 => Some(QueuePosition::ItsTurn),
        1 => Some(QueuePosition::InQueue),
        0 => Some(QueuePosition::NotInQueue),
        _ => None,
    }
}

/// A snapshot as the scripts reply it; `lua/lock_inspect.lua` describes it.
type RawSnapshot = (i64, Vec<RawHolder>, Vec<Vec<u8>>, Vec<u8>, Vec<u8>);
type RawHolder = (Vec<u8>, Vec<u8>, Vec<u8>, Vec<u8>);

/// Decodes a snapshot. The error describes a key that is not of the expected kind.
fn snapshot((ttl, holders, queue, token, number): RawSnapshot) -> Result<Snapshot, String> {
    Ok(Snapshot {
        holders: holders.iter().map(holder).collect::<Result<_, _>>()?,
        ttl: millis(ttl),
        queue: queue.iter().map(|waiter| OwnerId::from_wire(&text(waiter))).collect(),
        token: parse_number(&token, "a token")?,
        number: parse_number(&number, "a number")?,
    })
}

fn holder((owner, count, role, ttl): &RawHolder) -> Result<HolderSnapshot, String> {
    let owner = OwnerId::from_wire(&text(owner));
    let role = match &role[..] {
        b"r" => Role::Reader,
        b"w" => Role::Writer,
        b"p" => Role::Permit,
        _ => Role::Holder,
    };
    let ttl = parse_number(ttl, "a remaining lease")?.and_then(millis);
    match text(count).parse() {
        Ok(count) => Ok(HolderSnapshot::new(owner, count, role, ttl)),
        Err(_) => Err(format!("a hash whose field {:?} is not a hold count", owner.as_str())),
    }
}

/// Parses a number; `None` if the text is empty.
fn parse_number<T: FromStr>(bytes: &[u8], expected: &str) -> Result<Option<T>, String> {
    let text = text(bytes);
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| format!("{text:?} where {expected} should be"))
}

/// Returns what a key contains as text. Other programs may have written bytes that are not text.
pub(crate) fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

fn millis(ttl: i64) -> Option<Duration> {
    u64::try_from(ttl).ok().map(Duration::from_millis)
}
