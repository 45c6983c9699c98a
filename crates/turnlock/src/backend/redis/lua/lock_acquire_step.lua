-- Takes a lock, or raises the hold count of an owner that has it.
--
-- lock    the lock: a hash, owner -> hold count, with an expiry (as Redisson writes it)
-- owner
-- target  target hold count: 1 may begin a hold, 2 or more deepens one that must be there
-- lease   in milliseconds; never shortens what is left
--
-- Reply: nil  granted
--        n    refused: another owner holds it; n is the rest of its lease in ms, -1 when it has no end
--        -3   the hold that was to be deepened is gone
--
-- May be sent twice: the target is absolute, and a count is only ever raised to it.
local function acquire(lock, owner, target, lease)
  local ttl = redis.call('pttl', lock)
  if ttl == -2 then
    if target ~= '1' then
      return -3
    end
    redis.call('hset', lock, owner, '1')
    local expiry = redis.pcall('pexpire', lock, lease)
    if type(expiry) == 'table' then
      -- A user without the right to set an expiry must not leave a lock without end behind.
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
    return redis.error_reply('CORRUPT the hold count of the owner is not a number')
  end
  if tonumber(count) < tonumber(target) then
    redis.call('hset', lock, owner, target)
  end
  -- A write in any case, also where nothing changes: replicas acknowledge writes, and nothing else.
  redis.call('pexpire', lock, string.format('%.0f', math.max(ttl, tonumber(lease))))
  return nil
end

