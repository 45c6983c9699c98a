//! What the scripts answer, as the types of the model. An answer that no script gives comes back as an error.

use std::time::Duration;

use redis::Value;
use turnlock_core::OwnerId;
use turnlock_core::model::{Acquired, HolderPicture, Place, Released, Renewed, Role, Snapshot};

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

/// Whether an acquire was granted, and so wrote something.
pub(super) fn is_grant(value: &Value) -> bool {
    matches!(value, Value::Nil | Value::Array(_))
}

/// How many heard of a release, where somebody was told.
pub(super) fn told(value: &Value) -> Option<u32> {
    match value {
        Value::Int(heard) => u32::try_from(*heard).ok(),
        _ => None,
    }
}

pub(super) fn released(value: Value) -> Result<Released, Value> {
    match value {
        Value::Nil => Ok(Released::NotHeld),
        Value::Int(-1) => Ok(Released::Lowered),
        Value::Int(-2) => {
            tracing::warn!(
                "released, but the server lets this user not publish: waiters find out by polling"
            );
            Ok(Released::Freed)
        }
        Value::Int(heard) if heard >= 0 => Ok(Released::Freed),
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

/// Whether any line of a renewal was renewed.
pub(super) fn is_any_renewed(value: &Value) -> bool {
    matches!(value, Value::Array(lines) if lines.iter().any(|line| matches!(line, Value::Int(1 | 2))))
}

pub(super) fn kept(value: Value) -> Result<Renewed, Value> {
    match value {
        Value::Int(1) => Ok(Renewed::Renewed),
        Value::Int(0) => Ok(Renewed::NotHeld),
        other => Err(other),
    }
}

/// Whether something was kept, and so written.
pub(super) fn is_kept(value: &Value) -> bool {
    *value == Value::Int(1)
}

pub(super) fn places(value: Value) -> Result<Vec<Option<Place>>, Value> {
    lines(value, |line| match line {
        2 => Some(Place::ItsTurn),
        1 => Some(Place::InQueue),
        0 => Some(Place::Nowhere),
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

/// `Err` in the answer carries what was found instead of a thing of the kind.
pub(super) fn picture(value: Value) -> Result<Result<Snapshot, String>, Value> {
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
            token: parsed(token, "a token")?,
            number: parsed(number, "a number")?,
        })
    };
    Ok(snapshot())
}

fn holder(fields: &[Value]) -> Result<HolderPicture, String> {
    let owner = OwnerId::from_wire(&text(&fields[0]));
    let role = match text(&fields[2]).as_str() {
        "r" => Role::Reader,
        "w" => Role::Writer,
        "p" => Role::Permit,
        _ => Role::Holder,
    };
    let ttl = parsed(&fields[3], "the rest of a lease")?.and_then(millis);
    match text(&fields[1]).parse() {
        Ok(count) => Ok(HolderPicture { owner, count, role, ttl, since: None }),
        Err(_) => Err(format!("a hash whose field {:?} is no hold count", owner.as_str())),
    }
}

/// A number in a text, where the text is not empty.
fn parsed<T: std::str::FromStr>(value: &Value, what: &str) -> Result<Option<T>, String> {
    let text = text(value);
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| format!("{text:?} where {what} should be"))
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
