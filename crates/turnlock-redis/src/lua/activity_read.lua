-- Reads the activity records that have not expired.
--
-- KEYS[1]  hash of all activity records: activity_write.lua has its format
-- ARGV[1]  1 for records that can be part of a deadlock only, else 0
-- ARGV[2]  maximum number of records
-- ARGV[3]  longest record in bytes
--
-- Reply: the server's time in microseconds, the number of records that were scanned, at most one more than ARGV[2], and client,
-- time and text of each record
local time = redis.call('time')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local all = redis.call('hrandfield', KEYS[1], ARGV[2] + 1, 'withvalues')
local found = {}
local count = math.min(#all / 2, tonumber(ARGV[2]))
for i = 1, count do
  local value = all[2 * i]
  -- Anything else was not written by turnlock.
  local written, ends, linked, start = string.match(value, '^(%d+) (%d+) ([01]) ()')
  if
    written
    and #value - start < tonumber(ARGV[3])
    and tonumber(ends) > now
    and (linked == '1' or ARGV[1] == '0')
  then
    found[#found + 1] = all[2 * i - 1]
    found[#found + 1] = written
    found[#found + 1] = string.sub(value, start)
  end
end
return { now, #all / 2, found }
