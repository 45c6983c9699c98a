//! Decodes the replies of the scripts. A reply that no script gives is returned as the error.

use std::time::Duration;

use redis::Value;
use turnlock_core::OwnerId;
use turnlock_core::model::{Acquired, HolderSnapshot, QueuePosition, Released, Renewed, Role, Snapshot};

pub(super) fn acquired(value: Value) -> Result<Acquired, Value> {
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

/// Returns `true` if the reply is a grant, which is a write that replicas can acknowledge.
pub(super) fn is_grant(value: &Value) -> bool {
    matches!(value, Value::Nil | Value::Array(_))
}

/// Returns the number of subscribers that received a release; `None` if nothing was published.
pub(super) fn receivers(value: &Value) -> Option<u32> {
    match value {
        Value::Int(receivers) => u32::try_from(*receivers).ok(),
        _ => None,
    }
}

pub(super) fn released(value: Value) -> Result<Released, Value> {
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

pub(super) fn renewed(value: Value) -> Result<Vec<Option<Renewed>>, Value> {
    lines(value, |line| match line {
        1 => Some(Renewed::Renewed),
        2 => Some(Renewed::Longer),
        0 => Some(Renewed::NotHeld),
        _ => None,
    })
}

/// Returns `true` if any line was renewed, which is a write that replicas can acknowledge.
pub(super) fn is_any_renewed(value: &Value) -> bool {
    matches!(value, Value::Array(lines) if lines.iter().any(|line| matches!(line, Value::Int(1 | 2))))
}

pub(super) fn lease_set(value: Value) -> Result<Renewed, Value> {
    match value {
        Value::Int(1) => Ok(Renewed::Renewed),
        Value::Int(0) => Ok(Renewed::NotHeld),
        other => Err(other),
    }
}

/// Returns `true` if the lease was set, which is a write that replicas can acknowledge.
pub(super) fn is_lease_set(value: &Value) -> bool {
    *value == Value::Int(1)
}

pub(super) fn positions(value: Value) -> Result<Vec<Option<QueuePosition>>, Value> {
    lines(value, |line| match line {
        2 => Some(QueuePosition::ItsTurn),
        1 => Some(QueuePosition::InQueue),
        0 => Some(QueuePosition::NotInQueue),
        _ => None,
    })
}

pub(super) fn number(value: Value) -> Result<i64, Value> {
    match value {
        Value::Int(number) => Ok(number),
        other => Err(other),
    }
}

fn lines<T>(value: Value, decode: impl Fn(i64) -> Option<T>) -> Result<Vec<Option<T>>, Value> {
    let Value::Array(lines) = value else {
        return Err(value);
    };
    let decode = |line| if let Value::Int(line) = line { decode(line) } else { None };
    Ok(lines.into_iter().map(decode).collect())
}

/// Decodes a snapshot. The inner error describes a key that is not of the expected kind.
pub(super) fn snapshot(value: Value) -> Result<Result<Snapshot, String>, Value> {
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

pub(super) fn text(value: &Value) -> String {
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
