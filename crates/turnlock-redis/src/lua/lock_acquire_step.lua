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
-- Idempotent: the target is absolute, and a count is only ever raised to it. Fenced and fair locks do
-- something between the two parts.

-- The first part reads only. Returns the reply if the owner is refused, else nil; the PTTL of the lock; and the
-- hold count of the owner, false if it holds nothing.
local function check(lock, owner, target)
  local ttl = redis.call('pttl', lock)
  local count = ttl ~= -2 and redis.call('hget', lock, owner)
  local refusal
  if count then
    if not tonumber(count) then
      refusal = redis.error_reply('CORRUPT a hash with a hold count that is not a number')
    end
  elseif target ~= '1' then
    refusal = -3
  elseif ttl ~= -2 then
    refusal = not_a_lock(lock) or ttl
  end
  return refusal, ttl, count
end

-- The second part writes. Returns nil, or an error reply.
local function grant(lock, owner, target, lease, ttl, count)
  if not count or tonumber(count) < tonumber(target) then
    redis.call('hset', lock, owner, target)
  end
  -- Always a write, even if nothing changes: replicas acknowledge writes only.
  local longest = ttl > tonumber(lease) and string.format('%.0f', ttl) or lease
  local expiry = redis.pcall('pexpire', lock, longest)
  if type(expiry) ~= 'table' then
    return nil
  end
  if not count then
    -- A user without permission to set an expiry must not leave a lock that never expires.
    redis.call('hdel', lock, owner)
  end
  return expiry
end

local function acquire(lock, owner, target, lease)
  local refusal, ttl, count = check(lock, owner, target)
  if refusal then
    return refusal
  end
  return grant(lock, owner, target, lease, ttl, count)
end

