//! A fencing token stops a holder that was paused past its lease.
//!
//! The table remembers the highest token that has written, and refuses lower ones. The check is shown in SQL (`SQLite`
//! in memory) and, on a server, in a Redis script.
//!
//! ```text
//! cargo run --example fencing                          # the lock in memory, the check in SQL
//! cargo run --example fencing -- redis://127.0.0.1     # the lock and one more check in Redis
//! ```

use std::error::Error;
use std::time::Duration;

use rusqlite::{Connection, params};
use turnlock::Client;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1);
    let client = Client::connect(url.as_deref().unwrap_or("memory://")).await?;
    let lock = client.fenced_lock("example:ledger").with_lease(Duration::from_millis(200));

    // The first holder is paused for longer than its lease, as by a suspended machine. It has read its token, and does
    // not know of the pause.
    let paused = lock.lock().await?;
    let old = paused.token().ok_or("a fenced lock has a token")?;
    tokio::time::sleep(Duration::from_millis(250)).await;

    // Meanwhile the store grants the lock to the next holder, with a higher token.
    let next = lock.lock().await?;
    let new = next.token().ok_or("a fenced lock has a token")?;
    println!("tokens: {old} (paused), then {new}");
    assert!(new > old);

    let ledger = sql_ledger()?;
    report("SQL", "the next holder", write_sql(&ledger, "paid by the next holder", new)?, true);
    report("SQL", "the paused holder", write_sql(&ledger, "paid twice", old)?, false);

    if let Some(url) = url.filter(|url| url.starts_with("redis")) {
        let mut redis = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
        report(
            "Redis",
            "the next holder",
            write_redis(&mut redis, "paid by the next holder", new).await?,
            true,
        );
        report("Redis", "the paused holder", write_redis(&mut redis, "paid twice", old).await?, false);
    }

    // `is_valid` needs no request, so check it first. It is no proof: a pause can follow the check.
    assert!(!paused.is_valid());
    next.unlock().await?;
    Ok(())
}

/// Prints the outcome of a write, and panics if it is not the expected one.
fn report(table: &str, writer: &str, is_written: bool, expected: bool) {
    let outcome = if is_written { "wrote" } else { "was refused: its token is too low" };
    println!("{table:<6} {writer:<18} {outcome}");
    assert_eq!(is_written, expected);
}

/// A table with an additional column: the highest token that has written the row.
fn sql_ledger() -> rusqlite::Result<Connection> {
    let sql = Connection::open_in_memory()?;
    sql.execute_batch(
        "CREATE TABLE ledger (id INTEGER PRIMARY KEY, entry TEXT, token INTEGER NOT NULL);
         INSERT INTO ledger VALUES (1, 'open', 0);",
    )?;
    Ok(sql)
}

/// Checks and writes in one statement. `<=`, because one grant can write several times.
fn write_sql(sql: &Connection, entry: &str, token: u64) -> Result<bool, Box<dyn Error>> {
    let token = i64::try_from(token)?;
    let rows = sql.execute(
        "UPDATE ledger SET entry = ?1, token = ?2 WHERE id = 1 AND token <= ?2",
        params![entry, token],
    )?;
    Ok(rows == 1)
}

/// Checks and writes in one step. Tokens are below 2^53, so Lua compares them exactly.
const FENCED_SET: &str = "
local highest = tonumber(redis.call('hget', KEYS[1], 'token') or 0)
if tonumber(ARGV[2]) < highest then
  return 0
end
redis.call('hset', KEYS[1], 'entry', ARGV[1], 'token', ARGV[2])
return 1
";

async fn write_redis(
    redis: &mut redis::aio::MultiplexedConnection,
    entry: &str,
    token: u64,
) -> redis::RedisResult<bool> {
    let script = redis::Script::new(FENCED_SET);
    script.key("example:ledger:row").arg(entry).arg(token).invoke_async(redis).await
}
