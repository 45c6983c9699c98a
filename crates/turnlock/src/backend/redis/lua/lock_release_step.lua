-- Lowers the hold count of an owner; at zero, ends the hold and tells those who wait.
--
-- lock
-- owner
-- target   target hold count: 0 ends the hold
-- channel  on which the end is told; empty to tell nobody
--
-- Reply: nil  the owner does not hold the lock; nothing was done
--        -1   lowered, or not above the target before
--        n    ended; n clients heard of it
--        -2   ended, but this user may not publish: nobody was told
--
-- May be sent twice: the second time finds nothing to do. Never creates. The end of a hold is one HDEL, which is
-- the check and the deed in one and is allowed when the server is out of memory.
local function release(lock, owner, target, channel)
  if target == '0' then
    if redis.call('hdel', lock, owner) == 0 then
      return nil
    end
    if channel == '' then
      return 0
    end
    local heard = redis.pcall(PUBLISH, channel, '0')
    if type(heard) == 'table' then
      return -2
    end
    return heard
  end

  local count = redis.call('hget', lock, owner)
  if not count then
    return nil
  end
  if not tonumber(count) then
    return redis.error_reply('CORRUPT the hold count of the owner is not a number')
  end
  if tonumber(count) > tonumber(target) then
    -- Refused when the server is out of memory. That does no harm: the client knows its count, and the last release
    -- ends the hold whatever count stands here.
    redis.pcall('hset', lock, owner, target)
  end
  return -1
end

