//! Faults of one server that several shapes share.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio::time::sleep;
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

/// The keys of a server that are left and should not be. Those of semaphores, clients and requests stay.
pub(super) async fn left(server: &RedisServer) -> anyhow::Result<Vec<String>> {
    let keys = server.query::<Vec<String>>(&["KEYS", "*"]).await?;
    let mut keys: Vec<_> = keys.into_iter().filter(|key| !is_kept(key)).collect();
    keys.sort();
    Ok(keys)
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

/// Returns `true` for keys that outlast the holds: numbers of permits, tokens, records that expire, and filling.
fn is_kept(key: &str) -> bool {
    ["semaphore-", "permits-", "{semaphore-", "{permits-", "turnlock_", "redisson_lock_token", "filler:"]
        .iter()
        .any(|start| key.starts_with(start))
}
