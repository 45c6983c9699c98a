//! Decodes the replies of the scripts.

use std::time::Duration;

use redis::Value;
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
    let mut notified = None;
    let value = match call.action() {
        Action::Acquire => acquired(value).map(StepValue::Acquired),
        Action::Release => {
            notified = receivers(&value);
            released(value).map(StepValue::Released)
        }
        Action::SetLease => lease_set(value).map(StepValue::Renewed),
        Action::ForceUnlock => number(value).map(|held| StepValue::ForceUnlocked(held == 1)),
        Action::Perform => number(value).map(StepValue::Number),
        Action::Forget => number(value).map(|_| StepValue::Forgotten),
        Action::Inspect => match snapshot(value) {
            Ok(Err(found)) => {
                let key = call.lock.key().to_owned();
                return Err(Failure::refused(FailureKind::NotALock { key, found }));
            }
            Ok(Ok(snapshot)) => Ok(StepValue::Snapshot(snapshot)),
            Err(value) => Err(value),
        },
        Action::Renew | Action::Heartbeat | Action::Other => Err(value),
    };
    let value = value.map_err(|value| failure::unexpected_reply("a script", &value))?;
    Ok(StepReply { value, sent, replicas, notified })
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
    Ok(StepReply { value, sent, replicas: reached, notified: None })
}

// Below, a reply that no script gives is returned as the error.

fn acquired(value: Value) -> Result<Acquired, Value> {
    match value {
        Value::Nil => Ok(Acquired::Granted),
        Value::Int(-3) => Ok(Acquired::Gone),
        Value::Int(ttl) if ttl >= -1 => Ok(Acquired::Busy { ttl: millis(ttl) }),
        Value::Array(items) => match &items[..] {
            [Value::BulkString(token)] => {
                let token = std::str::from_utf8(token).ok().and_then(|token| token.parse().ok());
                token.map(|token| Acquired::GrantedWith { token }).ok_or(Value::Array(items))
            }
            _ => Err(Value::Array(items)),
        },
        other => Err(other),
    }
}

/// Returns the number of subscribers that received a release; `None` if nothing was published.
fn receivers(value: &Value) -> Option<u32> {
    match value {
        Value::Int(receivers) => u32::try_from(*receivers).ok(),
        _ => None,
    }
}

fn released(value: Value) -> Result<Released, Value> {
    match value {
        Value::Nil => Ok(Released::NotHeld),
        Value::Int(-1) => Ok(Released::StillHeld),
        Value::Int(-2) => {
            tracing::warn!("release not published, the Redis user may not publish: waiters poll");
            Ok(Released::Freed)
        }
        Value::Int(receivers) if receivers >= 0 => Ok(Released::Freed),
        other => Err(other),
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

fn lease_set(value: Value) -> Result<Renewed, Value> {
    match value {
        Value::Int(1) => Ok(Renewed::Renewed),
        Value::Int(0) => Ok(Renewed::NotHeld),
        other => Err(other),
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

pub(crate) fn number(value: Value) -> Result<i64, Value> {
    match value {
        Value::Int(number) => Ok(number),
        other => Err(other),
    }
}

/// Decodes a snapshot. The inner error describes a key that is not of the expected kind.
fn snapshot(value: Value) -> Result<Result<Snapshot, String>, Value> {
    let Value::Array(items) = &value else {
        return Err(value);
    };
    let [Value::Int(ttl), Value::Array(holders), Value::Array(queue), token, number] = &items[..] else {
        return Err(value);
    };
    let snapshot = || -> Result<Snapshot, String> {
        Ok(Snapshot {
            holders: holders.chunks_exact(4).map(holder).collect::<Result<_, _>>()?,
            ttl: millis(*ttl),
            queue: queue.iter().map(|waiter| OwnerId::from_wire(&text(waiter))).collect(),
            token: parse_number(token, "a token")?,
            number: parse_number(number, "a number")?,
        })
    };
    Ok(snapshot())
}

fn holder(fields: &[Value]) -> Result<HolderSnapshot, String> {
    let owner = OwnerId::from_wire(&text(&fields[0]));
    let role = match text(&fields[2]).as_str() {
        "r" => Role::Reader,
        "w" => Role::Writer,
        "p" => Role::Permit,
        _ => Role::Holder,
    };
    let ttl = parse_number(&fields[3], "a remaining lease")?.and_then(millis);
    match text(&fields[1]).parse() {
        Ok(count) => Ok(HolderSnapshot { owner, count, role, ttl, since: None }),
        Err(_) => Err(format!("a hash whose field {:?} is not a hold count", owner.as_str())),
    }
}

/// Parses a number; `None` if the text is empty.
fn parse_number<T: std::str::FromStr>(value: &Value, expected: &str) -> Result<Option<T>, String> {
    let text = text(value);
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| format!("{text:?} where {expected} should be"))
}

pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) => text.clone(),
        Value::Int(number) => number.to_string(),
        _ => String::new(),
    }
}

fn millis(ttl: i64) -> Option<Duration> {
    u64::try_from(ttl).ok().map(Duration::from_millis)
}
