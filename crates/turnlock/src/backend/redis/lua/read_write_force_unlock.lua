-- Ends all holds of a read-write lock if it is in a mode, whoever has them, and tells those who wait.
--
-- KEYS[1]  the lock
-- ARGV[1]  the mode: read or write
-- ARGV[2]  channel on which the end is told
-- ARGV[3]  the beginning of the keys of read holds
--
-- Reply: 1 it was held in that mode, 0 it was not
--
-- HGETALL fails on a key of another type, and only a hash with a mode is deleted. It is the last resort, so counts that
-- are no numbers do not hinder it.
local lock, mode, channel, below = KEYS[1], ARGV[1], ARGV[2], ARGV[3]

local fields = redis.call('hgetall', lock)
local found = false
for i = 1, #fields, 2 do
  found = found or fields[i] == 'mode' and fields[i + 1] == mode
end
if not found then
  return 0
end
redis.call('del', lock)
for i = 1, #fields, 2 do
  for number = 1, hold_count(fields[i + 1]) or 0 do
    redis.call('del', hold_key(below, fields[i], number))
  end
end
tell(channel, mode == 'read' and '0' or '1')
return 1
