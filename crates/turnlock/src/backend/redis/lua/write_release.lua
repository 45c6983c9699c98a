-- Lowers the hold count of a writer; at zero, ends its hold and tells those who wait. Takes back the word that it waits.
--
-- KEYS[1]  the lock
-- KEYS[2]  the owner of a writer that waits
-- ARGV[1]  owner
-- ARGV[2]  target hold count: 0 ends the hold
-- ARGV[3]  channel on which the end is told
-- ARGV[4]  the beginning of the keys of read holds
--
-- Reply: nil  the owner does not write
--        -1   lowered, or not above the target before
--        n    ended; n clients heard of it
--        -2   ended, but this user may not publish: nobody was told
--
-- May be sent twice: the second time finds nothing to do. Never creates. What reads under the writer goes on alone, and
-- the lock then lasts as long as the longest of these holds. The end of the write hold is an HDEL or DEL, which are
-- allowed when the server is out of memory; and what follows a first write in a script is not refused for want of memory,
-- so the mode is set after it. Should a server refuse that all the same, the readers stay protected, and others are kept
-- out until they have left.
local lock, waiting, owner, target, channel, below = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]

local seen, fault = look(lock)
if fault then
  return fault
end
local count = seen.writers[owner]
local waited = redis.pcall('get', waiting) == owner
if waited then
  redis.pcall('del', waiting)
end
if not count then
  if waited then
    -- Readers stayed behind a writer that has given up.
    tell(channel, '1')
  end
  return nil
end
if target > 0 then
  if count > target then
    -- Refused when the server is out of memory, which does no harm: the last release ends the hold in any case.
    redis.pcall('hset', lock, owner .. ':write', target)
  end
  return -1
end

local rest, stale = others(below, seen.readers, nil)
if rest < 0 and seen.writing == 1 then
  redis.call('del', lock)
else
  redis.call('hdel', lock, owner .. ':write')
  for _, dead in ipairs(stale) do
    redis.call('hdel', lock, dead)
  end
  if seen.writing == 1 then
    redis.pcall('hset', lock, 'mode', 'read')
    expire(lock, rest)
  end
end
return tell(channel, '1')
