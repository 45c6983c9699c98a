//! What an error of the `redis` crate means for a step.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerErrorKind, Value};
use turnlock_core::Moment;

use super::address::Address;
use super::place::Place;
use crate::backend::{Failure, FailureKind, Sent};
use crate::error::Cause;

/// Whether the server answered with this error. If it did, the script did nothing: its writes come after its checks.
pub(super) fn is_answer(error: &RedisError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Server(_) | ErrorKind::Extension | ErrorKind::AuthenticationFailed | ErrorKind::Client
    )
}

/// Whether the connection is of no further use.
pub(super) fn breaks_connection(error: &RedisError) -> bool {
    !is_answer(error) || error.is_unrecoverable_error() || is_of_replica(error)
}

/// Whether the server is a replica: whoever stands behind the address now may be another one.
pub(super) fn is_of_replica(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown))
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
    let is_denial = is_denial(&error);
    let cause: Cause = if error.code().is_some() { Arc::new(Refusal(error)) } else { Arc::new(error) };
    let kind = if is_denial { FailureKind::Denied(cause) } else { FailureKind::Unavailable(cause) };
    Failure { kind, in_doubt, stands: false }
}

/// What a server answered, in its own words, by which others find it: LOADING, CLUSTERDOWN, NOREPLICAS …
#[derive(Debug)]
struct Refusal(RedisError);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0.code().unwrap_or("ERR"), self.0.detail().unwrap_or_default())
    }
}

impl std::error::Error for Refusal {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

/// A failure for want of an answer.
pub(super) fn timed_out(what: &str, limit: Duration, sent: Option<Sent>) -> Failure {
    let error = io::Error::new(io::ErrorKind::TimedOut, format!("no {what} within {limit:?}"));
    Failure { kind: FailureKind::Unavailable(Arc::new(error)), in_doubt: sent, stands: false }
}

/// What is told of a step that was not sent, since its caller is gone. Only the engine hears it.
pub(super) fn caller_gone() -> Failure {
    unavailable("not sent: the caller is gone".to_owned())
}

/// A failure that is best told in our own words.
pub(super) fn unavailable(text: String) -> Failure {
    Failure::refused(FailureKind::Unavailable(Arc::new(io::Error::other(text))))
}

/// The answer came from a server that is not the master any more.
pub(super) fn deposed(sent: Sent) -> Failure {
    let error = io::Error::other("the server that answered is not the master any more");
    Failure { kind: FailureKind::Unavailable(Arc::new(error)), in_doubt: Some(sent), stands: false }
}

/// The runtime of the connections is gone, and nobody knows what became of a call that came at that time.
pub(super) fn abandoned(came: Moment) -> Failure {
    let cause = io::Error::new(io::ErrorKind::ConnectionAborted, "the runtime of the client is gone");
    // A number that no connection has.
    let sent = Sent { connection: 0, at: came };
    Failure { kind: FailureKind::Unavailable(Arc::new(cause)), in_doubt: Some(sent), stands: false }
}

/// While a connection was being made, the place was found to be elsewhere.
pub(super) fn moved_on(place: &Place, from: &Address) -> Failure {
    unavailable(format!("{place} is not at {from} any more"))
}

pub(super) fn no_connection(place: &Place, limit: Duration) -> Failure {
    timed_out(&format!("connection to {place}"), limit, None)
}

/// What became of the try to get in at `address`.
pub(super) fn not_let_in(address: &Address, error: RedisError) -> Failure {
    if is_denial(&error) {
        return Failure::refused(FailureKind::Denied(Arc::new(error)));
    }
    unavailable(format!("no connection to {address}: {error}"))
}

/// Whether the answer to ROLE is that of a replica.
pub(super) fn is_role_of_replica(role: &Value) -> bool {
    matches!(role, Value::Array(role) if matches!(role.first(), Some(Value::BulkString(text)) if text == b"slave"))
}

/// An error if the answer to ROLE says that the server is something else than a master.
pub(super) fn check_master(address: &Address, role: &Value) -> Result<(), Failure> {
    let Value::Array(role) = role else { return Ok(()) };
    let text = |place: usize| match role.get(place) {
        Some(Value::BulkString(text)) => String::from_utf8_lossy(text).into_owned(),
        Some(Value::Int(number)) => number.to_string(),
        _ => String::new(),
    };
    match text(0).as_str() {
        "slave" => Err(unavailable(format!(
            "{address} is a replica (READONLY), of {}:{}{}: locks live on the master; give its address, or let sentinels \
             find it (redis+sentinel://)",
            text(1),
            text(2),
            if text(3) == "connected" { "" } else { ", which it does not reach (MASTERDOWN)" }
        ))),
        "sentinel" => Err(unavailable(format!(
            "{address} is a sentinel: write redis+sentinel://{address}/NAME with the name of the master"
        ))),
        _ => Ok(()),
    }
}

/// Where else a node of a cluster says that a slot is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Redirect {
    /// For good.
    Moved(Address),
    /// For this one request: the slot is moving.
    Ask(Address),
}

/// Where to go instead; `node` is the one that said it, and may leave out a host that is its own.
pub(super) fn redirect(error: &RedisError, node: &Address) -> Option<Redirect> {
    let (address, _) = error.redirect_node()?;
    let (host, port) = address.rsplit_once(':')?;
    let port = port.parse().ok()?;
    let host = match (host, node) {
        // It does not know its name, and may not say its address.
        ("?", _) => return None,
        ("", Address::Tcp { host, .. }) => host,
        (host, _) => host,
    };
    let address = Address::tcp(host.trim_matches(['[', ']']), port);
    let is_ask = error.kind() == ErrorKind::Server(ServerErrorKind::Ask);
    Some(if is_ask { Redirect::Ask(address) } else { Redirect::Moved(address) })
}

/// Whether the keys of a script are on two nodes just now.
pub(super) fn is_split(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::TryAgain)
}

/// How to find the lines of a batch that a refusal is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Division {
    /// Each line in a call of its own: most of them are refused together only.
    Each,
    /// By halves: most of them are not concerned.
    Halves,
}

/// What a key is denied with: by Redis 6.2, by Redis 7 and Valkey, and inside a script of Redis 7.0.
const DENIED_KEY: [&str; 3] =
    ["access one of the keys", "permissions to access a key", "access at least one of the keys"];

/// How to go on with a batch that was refused as a whole; `None` when it would be refused in parts as well.
pub(super) fn division(failure: &Failure) -> Option<Division> {
    match &failure.kind {
        FailureKind::Unavailable(cause) => {
            let is_split = cause.downcast_ref::<Refusal>().is_some_and(|refusal| is_split(&refusal.0));
            is_split.then_some(Division::Each)
        }
        // A key, and not the command, is what this user has no right to.
        FailureKind::Denied(cause) => {
            let text = cause.downcast_ref::<Refusal>().and_then(|refusal| refusal.0.detail());
            let is_of_key = |text: &str| DENIED_KEY.iter().any(|words| text.contains(words));
            text.is_some_and(is_of_key).then_some(Division::Halves)
        }
        _ => None,
    }
}

/// Whether another look at the cluster is worth while.
pub(super) fn is_of_cluster(error: &RedisError) -> bool {
    error.is_cluster_error() || is_of_replica(error)
}

/// Whether it will not be allowed later either.
pub(super) fn is_denial(error: &RedisError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::AuthenticationFailed
            | ErrorKind::InvalidClientConfig
            | ErrorKind::Server(ServerErrorKind::NoPerm)
    ) || matches!(error.code(), Some("NOAUTH" | "WRONGPASS" | "NOPERM"))
        || error.detail().is_some_and(|text| DENIED_IN_SCRIPT.iter().any(|words| text.contains(words)))
}

/// What a command inside a script is refused with: up to Redis 7.0, and from 7.2 on and by Valkey, where the code is ERR.
const DENIED_IN_SCRIPT: [&str; 2] = ["The user executing the script", "ACL failure in script"];

/// Whether the server wants a password first.
pub(super) fn is_unauthenticated(error: &RedisError) -> bool {
    error.code() == Some("NOAUTH")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error that a server answers with these words.
    fn error(text: &str) -> RedisError {
        let answer = redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).expect("an answer");
        answer.extract_error().expect_err("an error")
    }

    #[test]
    fn denials_of_all_servers_are_known() {
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
    fn a_replica_is_known_by_its_words() {
        for text in [
            "READONLY You can't write against a read only replica.",
            "READONLY You can't write against a read only replica. script: 00, on @user_script:12.",
            "ERR Error running script (call to f_00): @user_script:12: @user_script: 12: -READONLY You can't write against \
             a read only replica.",
            "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
        ] {
            assert!(is_of_replica(&error(text)) && breaks_connection(&error(text)), "{text}");
        }
        for text in [
            "MISCONF Redis is configured to save RDB snapshots",
            "NOREPLICAS Not enough good replicas to write.",
        ] {
            assert!(!breaks_connection(&error(text)), "{text}");
        }
    }
}
