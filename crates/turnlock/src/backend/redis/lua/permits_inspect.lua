-- What a permit semaphore looks like.
--
-- KEYS[1]  the number of free permits
-- KEYS[2]  the taken permits: a sorted set, id -> end
--
-- Reply: a picture, as of lock_inspect.lua: each permit whose lease runs is a holder, by its id in hexadecimal digits and
--        with a lease of its own; the number is that of the free ones, with those whose leases ran out
local permits, taken = KEYS[1], KEYS[2]
local now = now_in_ms()

local function hexadecimal(id)
  return (string.gsub(id, '.', function(byte)
    return string.format('%02x', string.byte(byte))
  end))
end

local holders = {}
local living = redis.call('zrangebyscore', taken, '(' .. decimal(now), '+inf', 'WITHSCORES')
for i = 1, #living, 2 do
  local ends = tonumber(living[i + 1])
  holders[#holders + 1] = hexadecimal(living[i])
  holders[#holders + 1] = '1'
  holders[#holders + 1] = 'p'
  holders[#holders + 1] = ends < NEVER and decimal(ends - now) or ''
end
local number = redis.call('get', permits) or ''
local free = whole(number)
if free then
  number = decimal(free + redis.call('zcount', taken, 0, decimal(now)))
end
return { redis.call('pttl', permits), holders, {}, '', number }
