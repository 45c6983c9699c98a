//! A server may reply anything: no reply causes a panic.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use redis::Value;
use turnlock_core::model::{AcquireOptions, Claim, CounterOp, Step};
use turnlock_core::{Kind, Lease, LockName, Moment, OwnerId};
use turnlock_store::{Activity, FailureKind, Sent};

use crate::directory::{scanned_keys, stored_activity};
use crate::key_probe::KeyProbe;
use crate::reply::Reply;
use crate::{Address, decode, failure, steps};

/// The number of cases of each property, without a file for failures.
pub(crate) fn config() -> ProptestConfig {
    ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() }
}

/// Texts that have a meaning in some reply, numbers at their limits, and others.
pub(crate) fn any_text() -> impl Strategy<Value = String> {
    const KNOWN: &[&str] = &[
        "",
        "0",
        "1",
        "-1",
        "2",
        "65535",
        "65536",
        "4294967296",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "18446744073709551615",
        "18446744073709551616",
        "1e9",
        "inf",
        "nan",
        "master",
        "slave",
        "sentinel",
        "connected",
        "127.0.0.1",
        "::1",
        "ip",
        "port",
        "config-epoch",
        "num-other-sentinels",
        "message",
        "smessage",
        "subscribe",
        "sunsubscribe",
        "pong",
        "hash",
        "string",
        "none",
        "read",
        "write",
        "mode",
        "r",
        "w",
        "p",
        "07070707-0707-4707-8707-070707070707:12",
        "07070707-0707-4707-8707-070707070707:12:write",
    ];
    prop_oneof![4 => select(KNOWN).prop_map(str::to_owned), 1 => any_characters()]
}

/// A few of any characters. Cheaper than `any::<String>()`.
fn any_characters() -> impl Strategy<Value = String> {
    vec(any::<char>(), 0..6).prop_map(String::from_iter)
}

/// Error replies with a meaning, and others.
fn any_error() -> impl Strategy<Value = Value> {
    const CODES: &[&str] = &[
        "ERR",
        "MOVED",
        "ASK",
        "TRYAGAIN",
        "CLUSTERDOWN",
        "READONLY",
        "MASTERDOWN",
        "NOSCRIPT",
        "NOPERM",
        "NOAUTH",
        "WRONGPASS",
        "WRONGTYPE",
        "LOADING",
        "BUSY",
        "CORRUPT",
        "WRONGKIND",
        "EXECABORT",
        "NOREPLICAS",
        "-",
        "",
    ];
    const PARTS: &[&str] = &[
        " ",
        ":",
        "1",
        "16384",
        "65536",
        "127.0.0.1:6379",
        "::1:1",
        ":1",
        "@user_script:",
        "-READONLY",
        "invalid password",
        "No such master",
        "ACL failure in script",
        "No permissions to access a key",
        "to run the 'evalsha' command",
        "\u{fc}",
    ];
    const REDIRECTS: &[&str] = &["MOVED 1 ", "MOVED 16384 ", "ASK 1 ", "MOVED x ", "ASK "];
    const NODES: &[&str] = &["h:1", ":1", "?:1", "[::1]:1", "h:", "h:x", "h:65536", "h:-1", "h", ":", ""];
    let line = prop_oneof![
        3 => (select(CODES), vec(select(PARTS), 0..5)).prop_map(|(code, parts)| format!("{code} {}", parts.concat())),
        1 => (select(REDIRECTS), select(NODES)).prop_map(|(redirect, node)| format!("{redirect}{node}")),
    ];
    line.prop_map(|line| redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap_or(Value::Nil))
}

fn any_number() -> impl Strategy<Value = Value> {
    prop_oneof![-5..5_i64, any::<i64>(), select(&[i64::MIN, i64::MAX][..])].prop_map(Value::Int)
}

/// Any value that is not a list.
fn any_leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        1 => Just(Value::Nil),
        1 => Just(Value::Okay),
        4 => any_number(),
        4 => any_text().prop_map(|text| Value::BulkString(text.into_bytes())),
        1 => vec(any::<u8>(), 0..9).prop_map(Value::BulkString),
        1 => any_text().prop_map(Value::SimpleString),
        1 => any_error(),
    ]
}

/// Any value that the protocol can have.
pub(crate) fn any_reply() -> impl Strategy<Value = Value> {
    any_leaf().prop_recursive(2, 12, 4, |inner| vec(inner, 0..5).prop_map(Value::Array))
}

/// Replies to an inspection, of which each part may be anything.
fn any_snapshot() -> impl Strategy<Value = Value> {
    let list = |part: BoxedStrategy<Value>| vec(part, 0..3).prop_map(Value::Array).boxed();
    let text = || any_text().prop_map(|text| Value::BulkString(text.into_bytes())).boxed();
    let holder = vec(text(), 4).prop_map(Value::Array).boxed();
    (any_number(), list(holder), list(text()), text(), text()).prop_map(
        |(ttl, holders, queue, token, number)| Value::Array(vec![ttl, holders, queue, token, number]),
    )
}

/// Replies with activity records, of which each part may be anything.
fn any_activity() -> impl Strategy<Value = Value> {
    const CLIENT: &str = "07070707-0707-4707-8707-070707070707";
    let client = prop_oneof![
        2 => Just(CLIENT.to_owned()),
        1 => any_text(),
    ];
    let number = prop_oneof![2 => (0..9_u64).prop_map(|number| number.to_string()), 1 => any_text()];
    let text = |text: String| Value::BulkString(text.into_bytes());
    let row = (client, number, any_leaf())
        .prop_map(move |(client, number, last)| [text(client), text(number), last]);
    let rows = (vec(row, 0..4), any::<bool>()).prop_map(|(rows, is_cut)| {
        let mut parts: Vec<_> = rows.into_iter().flatten().collect();
        parts.truncate(parts.len() - usize::from(is_cut && !parts.is_empty()));
        Value::Array(parts)
    });
    let count = prop_oneof![3 => (0..9_i64).prop_map(Value::Int), 1 => any_leaf()];
    (count.clone(), count.clone(), count, rows)
        .prop_map(|(now, scanned, complete, rows)| Value::Array(vec![now, scanned, complete, rows]))
}

fn step(kind: Kind, number: usize) -> Step {
    let (name, owner) = (LockName::of(kind, "", "n").expect("a valid name"), OwnerId::from_wire("c:1"));
    let claim = Claim::new(&name, &owner, 1);
    match number {
        0 => Step::Acquire(claim, AcquireOptions { lease: Lease::WATCHDOG, waits: true, highest_token: 0 }),
        1 => Step::Release(claim),
        2 => Step::SetLease { claim, lease: Lease::WATCHDOG, outlasts_client: false },
        3 => Step::ForceUnlock(name),
        4 => Step::Perform(name, CounterOp::CountDown, owner),
        5 => Step::Forget(name, owner),
        6 => Step::Renew(claim, None),
        7 => Step::Heartbeat(name, owner),
        _ => Step::Inspect(name),
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_reply_to_a_script_is_decoded_or_an_error(
        kind in select(&Kind::ALL[..]), number in 0..9_usize, reply in prop_oneof![any_reply(), any_snapshot()],
    ) {
        let reply = Reply::new(reply, Sent { connection: 1, at: Moment::from_micros(1) });
        let Ok(call) = steps::script_call(&[step(kind, number)]) else { return Ok(()) };
        if let Err(failure) = decode::step(&call, reply.clone()) {
            let is_known = matches!(failure.kind, FailureKind::Unavailable(_) | FailureKind::NotALock { .. });
            prop_assert!(is_known, "{}", failure);
            prop_assert!(failure.to_string().len() < 10_000);
        }
        let lines = if let Value::Array(lines) = &reply.value { lines.len() } else { 0 };
        if let Ok(batch) = decode::batch(&call, reply) {
            prop_assert_eq!(batch.value.len(), lines);
        }
    }

    #[test]
    fn any_reply_about_a_key_is_decoded_or_an_error(
        parts in vec(any_leaf(), 7), fields in vec(any_leaf(), 0..3),
    ) {
        let parts = parts.into_iter().chain([Value::Array(fields)]).collect();
        if let Ok(probe) = KeyProbe::decode(&Value::Array(parts)) {
            let kinds = (probe.certain_kind(), probe.possible_kind());
            prop_assert!(kinds.0.is_none() || kinds.1.is_some(), "{:?} of {:?}", kinds, probe);
        }
    }

    #[test]
    fn any_reply_with_activity_records_is_decoded_or_an_error(reply in prop_oneof![any_reply(), any_activity()]) {
        let Ok(Activity { now, records, .. }) = stored_activity(&reply) else { return Ok(()) };
        let rows = if let Value::Array(parts) = &reply && let Some(Value::Array(rows)) = parts.get(3) { rows.len() / 3 } else { 0 };
        prop_assert!(records.len() <= rows);
        prop_assert!(records.iter().all(|record| record.written <= now), "{:?} at {:?}", records, now);
    }

    #[test]
    fn any_page_of_keys_is_decoded_or_an_error(page in any_reply(), cursor in any_leaf(), keys in vec(any_leaf(), 0..4)) {
        let number = keys.len();
        for page in [page, Value::Array(vec![cursor, Value::Array(keys)])] {
            match scanned_keys(&page) {
                Ok((_, keys)) => prop_assert!(keys.len() <= number.max(4)),
                Err(failure) => prop_assert!(failure.to_string().len() < 10_000),
            }
        }
    }

    #[test]
    fn any_error_reply_is_classified(error in any_error(), lines in 1..300_usize, role in any_reply()) {
        let node = Address::tcp("127.0.0.1", 1);
        let _ = (failure::check_master(&node, &role), failure::is_replica_role(&role), failure::is_replica_reply(&error));
        let Err(error) = error.extract_error() else { return Ok(()) };
        prop_assert!(failure::redirect(&error, &node).is_none() || error.redirect_node().is_some());
        let _ = (failure::is_denial(&error), failure::is_ask(&error), failure::is_try_again(&error));
        let _ = (failure::is_about_login(&error), failure::is_unauthenticated(&error), failure::is_cluster_error(&error));
        let failure = failure::from_error(error, None);
        prop_assert!(!failure.to_string().is_empty());
        if let Some(size) = failure::part_size(&failure, lines) {
            prop_assert!((1..lines.max(2)).contains(&size), "parts of {} of {}", size, lines);
        }
    }
}
