-- Lowers the hold count of an owner. At zero, ends the hold and notifies waiters.
--
-- lock
-- owner
-- target   target hold count: 0 ends the hold
-- channel  channel of the release message; '' to publish nothing
--
-- Reply: nil  the owner does not hold the lock; nothing changes
--        -1   lowered, or already at or below the target
--        n    released; n subscribers received the message
--        -2   released, but the user may not publish: no waiter is notified
--
-- Idempotent: a copy finds nothing to do. Never starts a hold. A hold ends with one HDEL, which checks and
-- removes in one command and is allowed when the server is out of memory.
local function release(lock, owner, target, channel)
  if target == '0' then
    if redis.call('hdel', lock, owner) == 0 then
      return nil
    end
    if channel == '' then
      return 0
    end
    local receivers = redis.pcall(PUBLISH, channel, '0')
    return type(receivers) == 'table' and -2 or receivers
  end

  local count = redis.call('hget', lock, owner)
  if not count then
    return nil
  end
  if not tonumber(count) then
    return redis.error_reply('CORRUPT a hash with a hold count that is not a number')
  end
  if tonumber(count) > tonumber(target) then
    -- Refused when the server is out of memory. That does no harm: the client knows its count, and the last
    -- release ends the hold whatever the stored count is.
    redis.pcall('hset', lock, owner, target)
  end
  return -1
end

