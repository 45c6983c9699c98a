//! Faults of one server that several shapes share.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio::time::sleep;
use turnlock_core::LockName;
use turnlock_testkit::RedisServer;

use super::shape::Injection;

/// The arguments of a server whose acknowledged writes survive a kill.
pub(super) const DURABLE: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

/// Faults of a server that accepts writes. It stays up.
pub(super) const FAULTS: [&str; 5] =
    ["kill_pubsub", "script_flush", "max_memory", "acl_commands", "acl_channels"];

/// Injects a fault of [`FAULTS`], and ends it.
pub(super) async fn inject(server: &RedisServer, fault: &mut Injection<'_>) -> anyhow::Result<()> {
    fault.begin(&format!("port {}", server.port()));
    match fault.name {
        "kill_pubsub" => _ = server.query::<i64>(&["CLIENT", "KILL", "TYPE", "pubsub"]).await?,
        "script_flush" => execute(server, &["SCRIPT", "FLUSH"]).await?,
        "max_memory" => {
            execute(server, &["CONFIG", "SET", "maxmemory", "1"]).await?;
            fault.last().await;
        }
        "acl_commands" => {
            execute(server, &["ACL", "SETUSER", "default", "-eval", "-evalsha"]).await?;
            fault.last().await;
        }
        _ => {
            execute(server, &["ACL", "SETUSER", "default", "resetchannels"]).await?;
            fault.last().await;
        }
    }
    heal(server).await
}

/// Allows everything again.
pub(super) async fn heal(server: &RedisServer) -> anyhow::Result<()> {
    execute(server, &["CONFIG", "SET", "maxmemory", "0"]).await?;
    execute(server, &["ACL", "SETUSER", "default", "allkeys", "allchannels", "+@all"]).await
}

/// Sends a command whose reply does not matter.
pub(super) async fn execute(server: &RedisServer, words: &[&str]) -> anyhow::Result<()> {
    server.query::<()>(words).await.with_context(|| words.join(" "))
}

/// Waits until a section of `INFO` has this text.
pub(super) async fn until_info(server: &RedisServer, section: &str, text: &str) -> anyhow::Result<()> {
    let start = Instant::now();
    loop {
        let info = server.query::<String>(&["INFO", section]).await;
        if info.is_ok_and(|info| info.contains(text)) {
            return Ok(());
        }
        anyhow::ensure!(start.elapsed() < Duration::from_secs(30), "INFO {section} has no {text} after 30 s");
        sleep(Duration::from_millis(20)).await;
    }
}

/// What is left on a server and should not be. The keys of semaphores, clients and requests stay.
pub(super) async fn left(server: &RedisServer) -> anyhow::Result<Vec<String>> {
    let keys = server.query::<Vec<String>>(&["KEYS", "*"]).await?;
    let waits =
        if keys.iter().any(|key| key == LockName::ACTIVITY) { old_waits(server).await? } else { vec![] };
    let mut left = waits;
    for key in keys {
        let expiry = if is_record(&key) { server.query(&["PTTL", &key]).await? } else { 0 };
        left.extend(left_over(key, expiry));
    }
    left.sort();
    Ok(left)
}

/// Returns `true` for the records of clients and requests, which outlast the holds until they expire.
fn is_record(key: &str) -> bool {
    [LockName::ACTIVITY, "turnlock_client:", "turnlock_request:"].iter().any(|start| key.starts_with(start))
}

/// Returns a key that must not be left. For a record, `expiry` is the reply to `PTTL`: -1 without one, -2 if it has expired meanwhile.
fn left_over(key: String, expiry: i64) -> Option<String> {
    if is_record(&key) {
        return (expiry == -1).then(|| format!("{key} has no expiry"));
    }
    Some(key).filter(|key| !is_kept(key))
}

/// How long an announced wait may be left after its expiry. Each write of a client removes some of them, and all of them
/// expire together.
const EXPIRED_WAITS_KEPT: u64 = 60_000_000;

/// The announced waits that have expired long ago, in the format of `activity_write.lua`.
async fn old_waits(server: &RedisServer) -> anyhow::Result<Vec<String>> {
    let key = LockName::ACTIVITY;
    let waits = server.query::<HashMap<String, String>>(&["HGETALL", key]).await?;
    let (seconds, micros) = server.query::<(u64, u64)>(&["TIME"]).await?;
    let now = seconds * 1_000_000 + micros;
    let is_old = |wait: &str| {
        let end = wait.split(' ').nth(1).and_then(|end| end.parse::<u64>().ok());
        end.is_none_or(|end| end + EXPIRED_WAITS_KEPT < now)
    };
    let old =
        waits.iter().filter(|(_, wait)| is_old(wait)).map(|(client, wait)| format!("{key} {client}: {wait}"));
    Ok(old.collect())
}

/// The same of several servers.
pub(super) async fn left_on<'a>(
    servers: impl IntoIterator<Item = &'a RedisServer>,
) -> anyhow::Result<Vec<String>> {
    let mut keys = Vec::new();
    for server in servers {
        keys.extend(left(server).await?);
    }
    Ok(keys)
}

/// Returns `true` for keys that outlast the holds for ever: numbers of permits, tokens, and filling.
fn is_kept(key: &str) -> bool {
    ["semaphore-", "permits-", "{semaphore-", "{permits-", "redisson_lock_token", "filler:"]
        .iter()
        .any(|start| key.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_expire_is_left() {
        for (key, expiry, expected) in [
            ("filler:1", -1, None),
            ("permits-0", -1, None),
            ("lock-0", -1, Some("lock-0")),
            ("lock-0", 10, Some("lock-0")),
            ("turnlock_client:1", 60_000, None),
            ("turnlock_client:1", -2, None),
            ("turnlock_client:1", -1, Some("turnlock_client:1 has no expiry")),
            ("turnlock_request:{permits-0}:1", 60_000, None),
            ("turnlock_request:{permits-0}:1", -1, Some("turnlock_request:{permits-0}:1 has no expiry")),
            ("turnlock_waits", -1, Some("turnlock_waits has no expiry")),
        ] {
            assert_eq!(left_over(key.to_owned(), expiry).as_deref(), expected, "{key} {expiry}");
        }
    }
}
