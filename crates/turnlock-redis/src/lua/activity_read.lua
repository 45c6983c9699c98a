-- Reads the activity records that have not expired.
--
-- KEYS[1]  hash of all activity records: activity_write.lua has its format
-- ARGV[1]  1 for records that can be part of a deadlock only, else 0
-- ARGV[2]  maximum number of records
-- ARGV[3]  longest record in bytes
-- ARGV[4]  length of all records in bytes after which no further one is added
--
-- Reply: the server's time in microseconds, the number of records in the hash, 1 if no limit was reached, else 0, and client, time
-- and text of each record
local time = redis.call('time')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local number = redis.call('hlen', KEYS[1])
local all = redis.call('hrandfield', KEYS[1], ARGV[2], 'withvalues')
local found = {}
local complete = number <= tonumber(ARGV[2]) and 1 or 0
local left = tonumber(ARGV[4])
for i = 2, #all, 2 do
  if left <= 0 then
    complete = 0
    break
  end
  local value = all[i]
  -- Anything else was not written by turnlock.
  local written, ends, linked, start = string.match(value, '^(%d+) (%d+) ([01]) ()')
  if
    written
    and #value - start < tonumber(ARGV[3])
    and tonumber(ends) > now
    and (linked == '1' or ARGV[1] == '0')
  then
    found[#found + 1] = all[i - 1]
    found[#found + 1] = written
    found[#found + 1] = string.sub(value, start)
    left = left - #value
  end
end
return { now, number, complete, found }
