//! Turns errors of the `redis` crate into failures of a step, and builds failures of the transport.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerErrorKind, Value};
use turnlock_core::Moment;
use turnlock_core::planted::Bug;

use crate::access::Address;
use turnlock_store::Cause;
use turnlock_store::{Failure, FailureKind, Sent};

/// Returns `true` if this error is a reply of the server.
///
/// A script that replied with an error did nothing: its writes come after its checks.
pub(crate) fn is_reply(error: &RedisError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Server(_) | ErrorKind::Extension | ErrorKind::AuthenticationFailed | ErrorKind::Client
    )
}

/// Returns `true` if the connection must be closed.
pub(crate) fn breaks_connection(error: &RedisError) -> bool {
    !is_reply(error) || error.is_unrecoverable_error() || is_replica_error(error)
}

/// Returns `true` if the server is a replica. Its address may lead to another server by now.
pub(crate) fn is_replica_error(error: &RedisError) -> bool {
    if Bug::StaysOnReplica.is_planted() {
        return false;
    }
    error.kind() == ErrorKind::Server(ServerErrorKind::MasterDown) || has_code(error, "READONLY")
}

/// Returns `true` for the reply of a replica to a step in a batch.
pub(crate) fn is_replica_reply(value: &Value) -> bool {
    matches!(value, Value::ServerError(error) if is_replica_error(&error.clone().into()))
}

pub(crate) fn is_wrong_type(error: &RedisError) -> bool {
    has_code(error, "WRONGTYPE")
}

fn has_code(error: &RedisError, code: &str) -> bool {
    // Up to Redis 6 the code is inside the text of the script's error.
    error.code() == Some(code) || error.detail().is_some_and(|text| text.contains(code))
}

/// Returns the error reply of the server to a request, if the failure is one.
///
/// Then nothing was done. Any other request was not sent, or is in doubt.
pub(crate) fn error_reply(failure: &Failure) -> Option<&RedisError> {
    // A step that took effect can fail with the error reply to its `WAIT`.
    let (FailureKind::Unavailable(cause) | FailureKind::Denied(cause), false) =
        (&failure.kind, failure.took_effect)
    else {
        return None;
    };
    cause.downcast_ref().map(|StoreError(error)| error).filter(|error| is_reply(error))
}

/// Returns `true` if the server replied with an error that contains `text`.
pub(crate) fn has_detail(failure: &Failure, text: &str) -> bool {
    error_reply(failure).and_then(RedisError::detail).is_some_and(|detail| detail.contains(text))
}

/// Returns `true` if the server replied that it does not know the script.
pub(crate) fn is_unknown_script(failure: &Failure) -> bool {
    error_reply(failure).is_some_and(is_no_script)
}

pub(crate) fn is_no_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// Builds the failure for an error. `sent` is the request, if it was sent.
pub(crate) fn from_error(error: RedisError, sent: Option<Sent>) -> Failure {
    let in_doubt = if is_reply(&error) { None } else { sent };
    let is_denial = is_denial(&error);
    let cause: Cause = Arc::new(StoreError(error));
    let kind = if is_denial { FailureKind::Denied(cause) } else { FailureKind::Unavailable(cause) };
    Failure { kind, in_doubt, took_effect: false }
}

/// An error of the `redis` crate, as a cause: it has no cause of its own, since its text has all of it.
///
/// An error reply is displayed as the server sent it: users search for its code, as LOADING or CLUSTERDOWN.
#[derive(Debug)]
struct StoreError(RedisError);

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.code() {
            Some(code) => write!(f, "{code} {}", self.0.detail().unwrap_or_default()),
            None => self.0.fmt(f),
        }
    }
}

impl std::error::Error for StoreError {}

fn unavailable(kind: io::ErrorKind, text: &str, in_doubt: Option<Sent>) -> Failure {
    let cause = Arc::new(io::Error::new(kind, text));
    Failure { kind: FailureKind::Unavailable(cause), in_doubt, took_effect: false }
}

/// A request was sent and got no reply in time.
pub(crate) fn reply_timed_out(limit: Duration, sent: Sent) -> Failure {
    unavailable(io::ErrorKind::TimedOut, &format!("no reply within {limit:?}"), Some(sent))
}

/// A request was queued behind others for too long, and not sent.
pub(crate) fn send_timed_out(limit: Duration) -> Failure {
    unavailable(io::ErrorKind::TimedOut, &format!("the request was not sent within {limit:?}"), None)
}

/// A request was not sent, because its caller was dropped. Only the engine receives this.
pub(crate) fn abandoned() -> Failure {
    Failure::unavailable("the request was not sent, because its caller was dropped")
}

/// Connecting took too long.
pub(crate) fn connect_timed_out(endpoint: &impl fmt::Display, limit: Duration) -> Failure {
    unavailable(io::ErrorKind::TimedOut, &format!("no connection to {endpoint} within {limit:?}"), None)
}

/// The reply is none that `request`, a script or a command, ever gets.
pub(crate) fn unexpected_reply(request: &str, value: &Value) -> Failure {
    let text = format!("unexpected reply to {request}: {}", excerpt(value));
    unavailable(io::ErrorKind::InvalidData, &text, None)
}

/// Formats the start of a value, which may be very long.
fn excerpt(value: &Value) -> String {
    /// A text that refuses what does not fit.
    struct Limited(String);

    impl fmt::Write for Limited {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            let fits = self.0.len() + text.len() <= MAX_EXCERPT;
            fits.then(|| self.0.push_str(text)).ok_or(fmt::Error)
        }
    }

    let mut text = Limited(String::new());
    match fmt::write(&mut text, format_args!("{value:?}")) {
        Ok(()) => text.0,
        Err(_) => text.0 + "…",
    }
}

/// The longest text of a reply in an error, in bytes.
const MAX_EXCERPT: usize = 1_000;

/// The server was demoted during the request, so its reply does not count.
pub(crate) fn demoted(sent: Sent) -> Failure {
    let text = "the master changed during the request, so its reply does not count";
    unavailable(io::ErrorKind::Other, text, Some(sent))
}

pub(crate) const RUNTIME_GONE: &str =
    "the Tokio runtime of the client has shut down; keep it running while the client is in use";

/// The runtime of the connections has shut down. A call that was queued at that time is in doubt.
pub(crate) fn runtime_gone(queued_at: Moment) -> Failure {
    // No connection has the number 0.
    let sent = Sent { connection: 0, at: queued_at };
    unavailable(io::ErrorKind::ConnectionAborted, RUNTIME_GONE, Some(sent))
}

/// Connecting to `address` failed.
pub(crate) fn connect_failed(address: &Address, error: RedisError) -> Failure {
    if is_denial(&error) {
        return login_failed(error);
    }
    Failure::unavailable(format!("cannot connect to {address}: {error}"))
}

/// Returns `true` if the error reply to a login concerns the login, and not the server.
///
/// A server without a password refuses any with `ERR`.
pub(crate) fn is_about_login(error: &RedisError) -> bool {
    is_denial(error) || error.detail().is_some_and(|text| text.contains("AUTH"))
}

/// The server refused the login.
pub(crate) fn login_failed(error: RedisError) -> Failure {
    // Not a `StoreError`, since it is no reply to a request.
    let cause = io::Error::new(io::ErrorKind::PermissionDenied, StoreError(error));
    Failure::refused(FailureKind::Denied(Arc::new(cause)))
}

/// A query that is part of connecting to `address` failed.
pub(crate) fn query_failed(address: &Address, failure: Failure) -> Failure {
    match error_reply(&failure) {
        Some(error) => connect_failed(address, error.clone()),
        None => failure,
    }
}

/// Returns `true` if the reply to `ROLE` is that of a replica.
pub(crate) fn is_replica_role(role: &Value) -> bool {
    !Bug::StaysOnReplica.is_planted()
        && matches!(role, Value::Array(role) if matches!(role.first(), Some(Value::BulkString(text)) if text == b"slave"))
}

/// Checks the reply to `ROLE`.
///
/// # Errors
///
/// The server is a replica or a sentinel.
pub(crate) fn check_master(address: &Address, role: &Value) -> Result<(), Failure> {
    let Value::Array(role) = role else { return Ok(()) };
    let decode = |value| redis::from_redis_value_ref::<String>(value).ok();
    let text = |index: usize| role.get(index).and_then(decode).unwrap_or_default();
    match text(0).as_str() {
        "slave" => Err(Failure::unavailable(format!(
            "{address} is a replica (READONLY) of {}:{}{}, and locks need the master; use the address of the master, \
             or redis+sentinel:// to follow fail-overs",
            text(1),
            text(2),
            if text(3) == "connected" { "" } else { ", which it cannot reach (MASTERDOWN)" }
        ))),
        "sentinel" => Err(Failure::unavailable(format!(
            "{address} is a sentinel, which stores no locks; use redis+sentinel://{address}/NAME, with the name of the \
             master"
        ))),
        _ => Ok(()),
    }
}

/// Decodes a redirect to another node. `node` sent it, and may leave out the host if it is its own.
pub(crate) fn redirect(error: &RedisError, node: &Address) -> Option<Address> {
    let (address, _) = error.redirect_node()?;
    let (host, port) = address.rsplit_once(':')?;
    let port = port.parse().ok()?;
    let host = match (host, node) {
        // The node is configured to send its host name, and has none.
        ("?", _) => return None,
        ("", Address::Tcp { host, .. }) => host,
        (host, _) => host,
    };
    Some(Address::tcp(host.trim_matches(['[', ']']), port))
}

/// Returns `true` for a redirect of this request only, since the slot is moving. Otherwise it has moved.
pub(crate) fn is_ask(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::Ask)
}

/// Returns `true` if the keys of a script are on two nodes, since their slot is moving.
pub(crate) fn is_try_again(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::TryAgain)
}

/// Texts of errors that deny access to a key: Redis 6.2, Redis 7 and Valkey, and in a script of Redis 7.0.
const DENIED_KEY: [&str; 3] =
    ["access one of the keys", "permissions to access a key", "access at least one of the keys"];

/// Returns how large to make the parts of a batch that failed. `None` if they would fail as well.
pub(crate) fn part_size(failure: &Failure, lines: usize) -> Option<usize> {
    let error = error_reply(failure)?;
    let denies_key = |text: &str| DENIED_KEY.iter().any(|words| text.contains(words));
    let size = if is_try_again(error) {
        // Most lines fail only together.
        1
    } else if is_denial(error) && error.detail().is_some_and(denies_key) {
        // The user lacks permission for a key, not for the command, and most lines are not concerned.
        lines.div_ceil(2)
    } else {
        return None;
    };
    (lines > 1).then_some(size)
}

/// Returns `true` if the map of the cluster may be outdated.
pub(crate) fn is_cluster_error(error: &RedisError) -> bool {
    error.is_cluster_error() || is_replica_error(error)
}

/// Returns `true` if the server denies the request to this user.
pub(crate) fn is_denial(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::AuthenticationFailed | ErrorKind::InvalidClientConfig)
        || matches!(error.code(), Some("NOAUTH" | "WRONGPASS" | "NOPERM"))
        || error.detail().is_some_and(|text| DENIED_IN_SCRIPT.iter().any(|words| text.contains(words)))
}

/// Texts of errors that deny a command in a script: up to Redis 7.0, and from Redis 7.2 and in Valkey (with code ERR).
const DENIED_IN_SCRIPT: [&str; 2] = ["The user executing the script", "ACL failure in script"];

/// Returns `true` if the server requires a login first.
pub(crate) fn is_unauthenticated(error: &RedisError) -> bool {
    error.code() == Some("NOAUTH")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses an error reply.
    fn error(text: &str) -> RedisError {
        let reply = redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).expect("a reply");
        reply.extract_error().expect_err("an error")
    }

    #[test]
    fn a_chain_of_errors_prints_the_reply_of_the_server_once() {
        for text in [
            "NOAUTH Authentication required.",
            "LOADING Redis is loading the dataset in memory",
            "ERR some error",
        ] {
            let failure = from_error(error(text), None);
            let chain = turnlock_testkit::error_chain(&*failure.into_cause().expect("a cause"));
            assert_eq!(chain.matches(text).count(), 1, "{chain}");
            let code = text.split_once(' ').expect("a code").0;
            assert_eq!(chain.matches(code).count(), 1, "{chain}");
        }
    }

    #[test]
    fn denials_of_all_server_versions_are_recognised() {
        for text in [
            "NOPERM this user has no permissions to run the 'evalsha' command or its subcommand",
            "NOPERM User reader has no permissions to run the 'evalsha' command",
            "NOPERM No permissions to access a key",
            "NOAUTH Authentication required.",
            "WRONGPASS invalid username-password pair or user is disabled.",
            // Inside a script: Redis 6.2, Redis 7.0, Redis 7.2 and Valkey.
            "ERR Error running script (call to f_00): @user_script:12: @user_script: 12: The user executing the script can't \
             run this command or subcommand",
            "ERR Error running script (call to f_00): @user_script:12: @user_script: 12: The user executing the script is \
             lacking the permissions for the command",
            "NOPERM The user executing the script can't access at least one of the keys mentioned in the command arguments \
             script: 00, on @user_script:12.",
            "ERR ACL failure in script: User reader has no permissions to run the 'pexpire' command script: 00, on \
             @user_script:12.",
            "ERR ACL failure in script: No permissions to access a key script: 00, on @user_script:12.",
        ] {
            assert!(is_denial(&error(text)), "{text}");
            assert!(!breaks_connection(&error(text)), "{text}");
            assert!(matches!(from_error(error(text), None).kind, FailureKind::Denied(_)), "{text}");
        }
        for text in ["ERR wrong number of arguments", "LOADING Redis is loading the dataset in memory"] {
            assert!(!is_denial(&error(text)), "{text}");
        }
    }

    #[test]
    fn a_long_reply_is_cut_in_the_error() {
        let text = unexpected_reply("a script", &Value::Array(vec![Value::Int(7); 100_000])).to_string();
        assert!(text.len() < 2 * MAX_EXCERPT && text.contains('7') && text.ends_with('…'), "{text}");
    }

    #[test]
    fn errors_of_a_replica_are_recognised() {
        for text in [
            "READONLY You can't write against a read only replica.",
            "READONLY You can't write against a read only replica. script: 00, on @user_script:12.",
            "ERR Error running script (call to f_00): @user_script:12: @user_script: 12: -READONLY You can't write against \
             a read only replica.",
            "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
        ] {
            assert!(is_replica_error(&error(text)) && breaks_connection(&error(text)), "{text}");
        }
        for text in [
            "MISCONF Redis is configured to save RDB snapshots",
            "NOREPLICAS Not enough good replicas to write.",
        ] {
            assert!(!breaks_connection(&error(text)), "{text}");
        }
    }
}
