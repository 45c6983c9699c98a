-- Ends all holds of a read-write lock, of any owner, if it is in the given mode, and notifies
-- waiters.
--
-- KEYS[1]  lock
-- ARGV[1]  channel on which the end is published
-- ARGV[2]  mode: read or write
-- ARGV[3]  prefix of the keys of read holds
--
-- Reply: 1 it was held in that mode, 0 it was not
--
-- HGETALL fails on a key of another type, and only a hash with a mode is deleted. Invalid counts are ignored,
-- since this is the last resort.
local lock, channel, mode, prefix = KEYS[1], ARGV[1], ARGV[2], ARGV[3]

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
  for number = 1, parse_hold_count(fields[i + 1]) or 0 do
    redis.call('del', hold_key(prefix, fields[i], number))
  end
end
publish(channel, mode == 'read' and '0' or '1')
return 1
