-- Acquires a reentrant lock, or raises the hold count of its owner.
--
-- lock    hash, owner -> hold count, with an expiry (Redisson's format)
-- owner
-- target  target hold count: 1 may start a hold, 2 or more re-enters an existing one
-- lease   in milliseconds; never shortens the remaining lease
--
-- Reply: nil  granted
--        n    busy: remaining lease of another owner in ms, -1 if it has no expiry
--        -3   the hold to re-enter does not exist
--
-- Idempotent: the target is absolute, and a count is only ever raised to it.
local function acquire(lock, owner, target, lease)
  local ttl = redis.call('pttl', lock)
  if ttl == -2 then
    if target ~= '1' then
      return -3
    end
    redis.call('hset', lock, owner, '1')
    local expiry = redis.pcall('pexpire', lock, lease)
    if type(expiry) == 'table' then
      -- A user without permission to set an expiry must not leave a lock that never expires.
      redis.call('hdel', lock, owner)
      return expiry
    end
    return nil
  end

  local count = redis.call('hget', lock, owner)
  if not count then
    if target ~= '1' then
      return -3
    end
    return not_a_lock(lock) or ttl
  end
  if not tonumber(count) then
    return redis.error_reply('CORRUPT a hash with a hold count that is not a number')
  end
  if tonumber(count) < tonumber(target) then
    redis.call('hset', lock, owner, target)
  end
  -- Always a write, even if nothing changes: replicas acknowledge writes only.
  redis.call('pexpire', lock, string.format('%.0f', math.max(ttl, tonumber(lease))))
  return nil
end

