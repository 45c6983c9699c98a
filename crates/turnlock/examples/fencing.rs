//! A holder that was paused comes back after its lease has ended and writes. A fencing token, checked where the write
//! lands, refuses it. The check is shown in SQL (`SQLite` in memory) and, with a server, in Redis:
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
    let lock = client.fenced_lock("example:ledger").lease(Duration::from_millis(200));

    // The first holder is paused for longer than its lease, as by a suspended machine. It has read its token, and knows
    // nothing of the pause.
    let paused = lock.lock().await?;
    let old = paused.token().ok_or("a fenced lock gives a token")?;
    tokio::time::sleep(Duration::from_millis(250)).await;

    // Meanwhile the lock went to the next one.
    let next = lock.lock().await?;
    let new = next.token().ok_or("a fenced lock gives a token")?;
    println!("tokens: {old} (paused), then {new}");
    assert!(new > old);

    let ledger = sql_ledger()?;
    report("SQL", "the next holder", write_sql(&ledger, "paid by the next one", new)?, true);
    report("SQL", "the paused holder", write_sql(&ledger, "paid again!", old)?, false);

    if let Some(url) = url.filter(|url| url.starts_with("redis")) {
        let mut redis = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
        report("Redis", "the next holder", write_redis(&mut redis, "paid by the next one", new).await?, true);
        report("Redis", "the paused holder", write_redis(&mut redis, "paid again!", old).await?, false);
    }

    // The paused holder could have known, and this is the cheap check to do first. It is no proof: a pause may come right
    // after it.
    assert!(!paused.is_valid());
    next.unlock().await?;
    Ok(())
}

/// Says what happened, and fails if it is not what should have.
fn report(place: &str, who: &str, written: bool, expected: bool) {
    println!("{place:<6} {who:<18} {}", if written { "wrote" } else { "was refused: its token is too old" });
    assert_eq!(written, expected);
}

/// A table with one column more: the highest token that has written the row.
fn sql_ledger() -> rusqlite::Result<Connection> {
    let sql = Connection::open_in_memory()?;
    sql.execute_batch(
        "CREATE TABLE ledger (id INTEGER PRIMARY KEY, entry TEXT, token INTEGER NOT NULL);
         INSERT INTO ledger VALUES (1, 'open', 0);",
    )?;
    Ok(sql)
}

/// The check and the write are one statement. `<=`, since one grant may write several times.
fn write_sql(sql: &Connection, entry: &str, token: u64) -> Result<bool, Box<dyn Error>> {
    let token = i64::try_from(token)?;
    let rows = sql.execute(
        "UPDATE ledger SET entry = ?1, token = ?2 WHERE id = 1 AND token <= ?2",
        params![entry, token],
    )?;
    Ok(rows == 1)
}

/// The same in Redis: a script, so that the check and the write are one step. The tokens are compared as numbers, which
/// Lua does exactly up to 2^53.
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
