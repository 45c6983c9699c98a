-- Inspects a permit semaphore.
--
-- KEYS[1]  number of free permits
-- KEYS[2]  taken permits: sorted set, id -> expiry
--
-- Reply: a snapshot, see lock_inspect.lua. Each permit that has not expired is a holder with role 'p', its
--        id in hexadecimal digits as owner, and its own lease. The number is that of the free permits,
--        expired ones included.
local permits, taken = KEYS[1], KEYS[2]
local now = now_in_ms()

local function hexadecimal(id)
  return (string.gsub(id, '.', function(byte)
    return string.format('%02x', string.byte(byte))
  end))
end

local holders = {}
local active = redis.call('zrangebyscore', taken, '(' .. decimal(now), '+inf', 'WITHSCORES')
for i = 1, #active, 2 do
  local expiry = tonumber(active[i + 1])
  local remaining = expiry < NO_EXPIRY and decimal(expiry - now) or ''
  holders[#holders + 1] = { hexadecimal(active[i]), '1', 'p', remaining }
end
local number = redis.call('get', permits) or ''
local free = parse_integer(number)
if free then
  number = decimal(free + redis.call('zcount', taken, 0, decimal(now)))
end
return { redis.call('pttl', permits), holders, {}, '', number }
