//! What clients say of themselves: a key each, which no lock depends on.

use std::time::Duration;

use redis::Value;
use turnlock_core::{ClientId, LockName};

use super::arrival::Arrival;
use super::script_call::ScriptCall;
use super::{scripts, strange};
use crate::backend::{Answer, Failure};
use crate::identity::Identity;

/// The key of a client, as the name of a thing that is only that.
pub(super) fn key(client: ClientId) -> LockName {
    LockName::of_client(client)
}

pub(super) fn introduce(key: &LockName, record: &str, lasts: Duration) -> ScriptCall {
    let millis = u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX);
    ScriptCall::on(&scripts::CLIENT_INTRODUCE, key).arg(record).arg(millis)
}

pub(super) fn read(keys: &[LockName]) -> ScriptCall {
    let names: Vec<_> = keys.iter().map(LockName::key).collect();
    // One byte more than is believed, so that a longer one is seen to be that.
    ScriptCall::on_many(&scripts::CLIENT_READ, &keys[0], &names).arg(Identity::LONGEST_RECORD)
}

pub(super) fn was_read(Arrival { value, sent, .. }: Arrival) -> Result<Answer<Vec<Option<String>>>, Failure> {
    let Value::Array(records) = value else { return Err(strange(&value)) };
    let record = |record| match record {
        Value::BulkString(bytes) if !bytes.is_empty() => String::from_utf8(bytes).ok(),
        _ => None,
    };
    Ok(Answer::new(records.into_iter().map(record).collect(), sent))
}
