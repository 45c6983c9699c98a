-- Takes the writing side of a read-write lock, or raises the hold count of a writer that has it.
--
-- KEYS[1]  the lock
-- KEYS[2]  the owner of a writer that waits: a string with an expiry
-- ARGV[1]  owner
-- ARGV[2]  target hold count: 1 may begin a hold, 2 or more deepens one that must be there
-- ARGV[3]  lease in milliseconds; never shortens what is left
-- ARGV[4]  the beginning of the keys of read holds
-- ARGV[5]  for how many milliseconds new readers stay behind this writer when readers are in its way; 0 when it does not
--          wait
--
-- Reply: nil  granted
--        n    refused: others hold the lock; n is the rest of that in ms, -1 when it has no end
--        -3   the hold that was to be deepened is gone
--
-- May be sent twice: the target is absolute, and a count is only ever raised to it. A late copy can leave word once more
-- that a writer waits, which ends by itself. Where a writer is in the way no word is left: readers and writers race at its
-- end. The word is a courtesy: where it cannot be left or taken away, or its key is somebody else's, the lock works on.
local lock, waiting = KEYS[1], KEYS[2]
local owner, target, lease, below, word = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], ARGV[5]
local field = owner .. ':write'

local fields = redis.call('hmget', lock, 'mode', field)
local mode, count = fields[1], fields[2]
local ttl = redis.call('pttl', lock)
if count then
  count = hold_count(count)
  if not count or target > MOST_HOLDS then
    return corrupt(NO_COUNT)
  end
  if count < target then
    redis.call('hset', lock, field, target)
  end
  local expiry = extend_or_confirm(lock, ttl, lease)
  return type(expiry) == 'table' and expiry or nil
end
if target > 1 then
  return -3
end
if mode == 'write' then
  return not_a_lock(lock) or ttl
end
if ttl ~= -2 then
  if mode ~= 'read' then
    return corrupt(NO_MODE)
  end
  local seen, fault = look(lock)
  if fault then
    return fault
  end
  local in_the_way = seen.writing > 0
  for _, reader in ipairs(seen.readers) do
    -- The first that stands is enough. Who died is left to the next that changes the lock: a refusal writes little.
    in_the_way = in_the_way or rest_of(below, reader.owner, reader.count) >= 0
  end
  if in_the_way then
    if word ~= '0' then
      local waiter = redis.pcall('get', waiting)
      if not waiter or waiter == owner then
        redis.pcall('set', waiting, owner, 'PX', word)
      end
    end
    return ttl
  end
  redis.call('del', lock)
end

redis.call('hset', lock, 'mode', 'write', field, 1)
local expiry = expire(lock, lease)
if type(expiry) == 'table' then
  -- A user without the right to set an expiry must not leave a lock without end behind.
  redis.call('hdel', lock, 'mode', field)
  return expiry
end
if redis.pcall('get', waiting) == owner then
  redis.pcall('del', waiting)
end
return nil
