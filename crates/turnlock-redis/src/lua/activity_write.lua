-- Writes or removes the activity record of a client, and removes some records that have expired.
--
-- KEYS[1]  hash of all activity records
-- ARGV[1]  client
-- ARGV[2]  record
-- ARGV[3]  1 if the record can be part of a deadlock, else 0
-- ARGV[4]  time to live in milliseconds; 0 removes the record
--
-- A field is a client, its value is '<written> <end> <ARGV[3]> <record>', in microseconds of the server's clock.
--
-- Reply: the server's time in microseconds
local time = redis.call('time')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
-- Each write checks more records than it adds, so that the hash does not grow with clients that have died.
local some = redis.call('hrandfield', KEYS[1], 3, 'withvalues')
for i = 2, #some, 2 do
  local ends = string.match(some[i], '^%d+ (%d+) ')
  -- Anything else was not written by turnlock. It is left alone.
  if ends and tonumber(ends) <= now then
    redis.call('hdel', KEYS[1], some[i - 1])
  end
end
local lasts = tonumber(ARGV[4])
if lasts == 0 then
  redis.call('hdel', KEYS[1], ARGV[1])
  return now
end
local value = string.format('%.0f %.0f %s ', now, now + lasts * 1000, ARGV[3]) .. ARGV[2]
redis.call('hset', KEYS[1], ARGV[1], value)
-- The longest record decides: none lasts longer than a minute. A hash without an end would outlast all clients.
local expires = redis.pcall('pexpire', KEYS[1], math.max(lasts, 60000))
if type(expires) == 'table' then
  redis.call('hdel', KEYS[1], ARGV[1])
  return expires
end
return now
