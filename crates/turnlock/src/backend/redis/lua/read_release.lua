-- Lowers the hold count of a reader; at zero, ends its hold, and tells those who wait when it was the last.
--
-- KEYS[1]  the lock
-- ARGV[1]  owner
-- ARGV[2]  target hold count: 0 ends the hold
-- ARGV[3]  channel on which the end of the last hold is told
-- ARGV[4]  the beginning of the keys of read holds
--
-- Reply: nil  the owner does not read; what a dead reader of that name left was removed
--        -1   lowered, or not above the target before
--        n    ended; n clients heard of it, 0 also when others hold on and nobody was told
--        -2   ended, but this user may not publish: nobody was told
--
-- May be sent twice: the second time finds nothing to do. Never creates. All that is needed is allowed when the server is
-- out of memory. Readers that died are removed with the one that leaves, and the lock lasts as long as the longest hold
-- that remains; under a writer, as long as before.
local lock, owner, target, channel, below = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]

if target > 0 then
  local count = redis.call('hget', lock, owner)
  if not count then
    return nil
  end
  count = hold_count(count)
  if not count then
    return corrupt(NO_COUNT)
  end
  local rest, longest = rest_of(below, owner, count)
  if rest >= 0 then
    if count <= target then
      return -1
    end
    -- The longest lease stays. The last release ends the hold whatever stands here, so a refusal does no harm.
    if longest > target then
      local kept = redis.pcall('rename', hold_key(below, owner, longest), hold_key(below, owner, target))
      if type(kept) == 'table' and kept.err then
        return -1
      end
    end
    for number = target + 1, count do
      redis.call('del', hold_key(below, owner, number))
    end
    redis.pcall('hset', lock, owner, target)
    return -1
  end
end

local seen, fault = look(lock)
if fault then
  return fault
end
local count
for _, reader in ipairs(seen.readers) do
  if reader.owner == owner then
    count = reader.count
  end
end
if not count then
  return nil
end
local rest, stale = others(below, seen.readers, owner)

local deleted = 0
for number = 1, count do
  deleted = deleted + redis.call('del', hold_key(below, owner, number))
end
local heard = 0
if rest < 0 and seen.writing == 0 then
  redis.call('del', lock)
  heard = tell(channel, '0')
else
  redis.call('hdel', lock, owner)
  for _, dead in ipairs(stale) do
    redis.call('hdel', lock, dead)
  end
  if rest >= 0 and seen.mode == 'read' then
    expire(lock, rest)
  end
end
if deleted == 0 then
  return nil
end
return heard
