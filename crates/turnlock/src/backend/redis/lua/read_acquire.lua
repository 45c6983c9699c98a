-- Takes the reading side of a read-write lock, or raises the hold count of a reader that has it.
--
-- KEYS[1]  the lock
-- KEYS[2]  the owner of a writer that waits: a string with an expiry
-- ARGV[1]  owner
-- ARGV[2]  target hold count: 1 may begin a hold, 2 or more deepens one that must be there
-- ARGV[3]  lease in milliseconds; never shortens what is left
-- ARGV[4]  the beginning of the keys of its read holds
-- ARGV[5]  the owner of the write hold under which this one reads; empty for none
--
-- Reply: nil  granted
--        n    refused: a writer holds the lock, or waits for it; n is the rest of that in ms, -1 when it has no end
--        -3   the hold that was to be deepened is gone
--
-- May be sent twice: the target is absolute, and a count is only ever raised to it. New readers stay behind a writer that
-- waits, so that a stream of them does not starve it; who reads already may go deeper, or the two would wait for each
-- other. A reader under a write hold has nobody to stay behind.
local lock, waiting = KEYS[1], KEYS[2]
local owner, target, lease, below, under = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], ARGV[5]

local fields = redis.call('hmget', lock, 'mode', owner, owner .. ':write', under .. ':write')
local mode, count, writes, writes_above = fields[1], fields[2], fields[3], fields[4]
local ttl = redis.call('pttl', lock)
if mode ~= 'read' and mode ~= 'write' and (mode or ttl ~= -2) then
  return corrupt(NO_MODE)
end

if count then
  count = hold_count(count)
  if not count or target > MOST_HOLDS then
    return corrupt(NO_COUNT)
  end
  local ttls = {}
  local rest = rest_of(below, owner, count, ttls)
  if rest >= 0 then
    -- First what a server without memory refuses. A count without its keys does no harm: one key is enough to stand.
    if count < target then
      redis.call('hset', lock, owner, target)
    end
    for number = 1, math.max(count, target) do
      local key = hold_key(below, owner, number)
      if (ttls[number] or -2) == -2 then
        redis.call('set', key, '1', 'PX', lease)
      else
        extend(key, ttls[number], lease)
      end
    end
    local expiry = extend_or_confirm(lock, ttl, math.max(lease, rest))
    return type(expiry) == 'table' and expiry or nil
  end
end

if target > 1 then
  return -3
end
if mode == 'write' then
  if not writes and not writes_above then
    return not_a_lock(lock) or ttl
  end
elseif under == '' then
  local wait = redis.call('pttl', waiting)
  -- A key without an end is not of ours.
  if wait >= 0 then
    return wait
  end
end

-- The key of the hold ends by itself, so it may be there before its field.
redis.call('set', hold_key(below, owner, 1), '1', 'PX', lease)
local outcome
if mode then
  outcome = redis.pcall('hset', lock, owner, 1)
else
  outcome = redis.pcall('hset', lock, 'mode', 'read', owner, 1)
end
if type(outcome) ~= 'table' then
  outcome = mode and extend(lock, ttl, lease) or expire(lock, lease)
end
if type(outcome) == 'table' then
  -- A user without the right to set an expiry must not leave a lock without end behind.
  redis.pcall('del', hold_key(below, owner, 1))
  redis.call('hdel', lock, owner)
  if not mode then
    redis.call('hdel', lock, 'mode')
  end
  return outcome
end
return nil
