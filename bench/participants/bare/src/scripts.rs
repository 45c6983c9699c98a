//! The scripts, with the fewest commands that Redisson's format allows.

use std::sync::Arc;

use redis::RedisResult;
use redis::aio::MultiplexedConnection;

/// KEYS: the lock. ARGV: owner, lease in ms. Reply: nil if granted, else the remaining lease in ms.
const ACQUIRE: &str = "\
local ttl = redis.call('pttl', KEYS[1])
if ttl == -2 then
  redis.call('hset', KEYS[1], ARGV[1], 1)
  redis.call('pexpire', KEYS[1], ARGV[2])
  return nil
end
return ttl";

/// KEYS: the lock. ARGV: owner, channel. Reply: nil if it was not held, else the number of subscribers that received the message.
const RELEASE: &str = "\
if redis.call('hdel', KEYS[1], ARGV[1]) == 0 then return nil end
return redis.call('publish', ARGV[2], '0')";

/// KEYS: locks. ARGV: lease in ms, then the owner of each. Reply: the number of renewed locks.
const RENEW: &str = "\
local renewed = 0
for i, key in ipairs(KEYS) do
  if redis.call('hexists', key, ARGV[i + 1]) == 1 then
    renewed = renewed + redis.call('pexpire', key, ARGV[1])
  end
end
return renewed";

/// The SHA-1 hashes of the loaded scripts.
#[derive(Clone)]
pub(crate) struct Scripts {
    pub(crate) acquire: Arc<str>,
    pub(crate) release: Arc<str>,
    pub(crate) renew: Arc<str>,
}

impl Scripts {
    pub(crate) async fn load(connection: &mut MultiplexedConnection) -> RedisResult<Self> {
        Ok(Self {
            acquire: load(connection, ACQUIRE).await?,
            release: load(connection, RELEASE).await?,
            renew: load(connection, RENEW).await?,
        })
    }
}

async fn load(connection: &mut MultiplexedConnection, text: &str) -> RedisResult<Arc<str>> {
    let hash: String = redis::cmd("SCRIPT").arg("LOAD").arg(text).query_async(connection).await?;
    Ok(hash.into())
}
