//! Client records: one key per client. No lock depends on them.

use std::time::Duration;

use redis::Value;
use turnlock_core::{ClientId, LockName};

use super::reply::Reply;
use super::script_call::ScriptCall;
use super::{scripts, unexpected_reply};
use crate::backend::{Failure, StepReply};
use crate::identity::Identity;

/// Returns the key of a client, as a name.
pub(super) fn key(client: ClientId) -> LockName {
    LockName::of_client(client)
}

pub(super) fn write(key: &LockName, record: &str, ttl: Duration) -> ScriptCall {
    let millis = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
    ScriptCall::on(&scripts::CLIENT_RECORD_WRITE, key).arg(record).arg(millis)
}

pub(super) fn read(keys: &[LockName]) -> ScriptCall {
    let names: Vec<_> = keys.iter().map(LockName::key).collect();
    // The script reads one byte more than the limit, so that a record that is too long is recognised.
    ScriptCall::on_many(&scripts::CLIENT_RECORD_READ, &keys[0], &names).arg(Identity::MAX_RECORD_LEN)
}

pub(super) fn decode_records(
    Reply { value, sent, .. }: Reply,
) -> Result<StepReply<Vec<Option<String>>>, Failure> {
    let Value::Array(records) = value else { return Err(unexpected_reply(&value)) };
    let decode = |record| match record {
        Value::BulkString(bytes) if !bytes.is_empty() => String::from_utf8(bytes).ok(),
        _ => None,
    };
    Ok(StepReply::new(records.into_iter().map(decode).collect(), sent))
}
