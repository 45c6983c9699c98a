//! What an error of the `redis` crate means for a step.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::backend::{Failure, FailureKind, Sent};

/// Whether the server answered with this error. If it did, the script did nothing: its writes come after its checks.
pub(super) fn is_answer(error: &RedisError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Server(_) | ErrorKind::Extension | ErrorKind::AuthenticationFailed | ErrorKind::Client
    )
}

/// Whether the connection is of no further use.
pub(super) fn breaks_connection(error: &RedisError) -> bool {
    !is_answer(error) || error.is_unrecoverable_error() || is_read_only(error)
}

/// Whether the server is a replica: whoever stands behind the address now may be another one.
fn is_read_only(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly)
        // Up to Redis 6 the code stands inside the text of the script's error.
        || error.detail().is_some_and(|text| text.contains("READONLY"))
}

pub(super) fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

pub(super) fn is_wrong_type(error: &RedisError) -> bool {
    // Up to Redis 6 the code stands inside the text of the script's error.
    error.code() == Some("WRONGTYPE") || error.detail().is_some_and(|text| text.contains("WRONGTYPE"))
}

/// A failure from an error; `sent` says when and where the request left, if it did.
pub(super) fn from_error(error: RedisError, sent: Option<Sent>) -> Failure {
    let in_doubt = if is_answer(&error) { None } else { sent };
    let kind = if is_denial(&error) {
        FailureKind::Denied(Arc::new(error))
    } else {
        FailureKind::Unavailable(Arc::new(error))
    };
    Failure { kind, in_doubt }
}

/// A failure for want of an answer.
pub(super) fn timed_out(what: &str, limit: Duration, sent: Option<Sent>) -> Failure {
    let error = io::Error::new(io::ErrorKind::TimedOut, format!("no {what} within {limit:?}"));
    Failure { kind: FailureKind::Unavailable(Arc::new(error)), in_doubt: sent }
}

fn is_denial(error: &RedisError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::AuthenticationFailed
            | ErrorKind::InvalidClientConfig
            | ErrorKind::Server(ServerErrorKind::NoPerm)
    ) || matches!(error.code(), Some("NOAUTH" | "WRONGPASS" | "NOPERM"))
        // What a command inside a script is refused with.
        || error.detail().is_some_and(|text| text.contains("The user executing the script can't"))
}

/// Whether the server wants a password first.
pub(super) fn is_unauthenticated(error: &RedisError) -> bool {
    error.code() == Some("NOAUTH")
}
