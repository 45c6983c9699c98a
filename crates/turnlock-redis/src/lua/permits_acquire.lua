-- Takes permits with a lease, all or none.
--
-- KEYS[1]     number of free permits: string (Redisson's format)
-- KEYS[2]     taken permits: sorted set, id -> expiry
-- ARGV[1]     lease in milliseconds; never shortens the remaining lease
-- ARGV[2]     channel on which the number is published when expired permits were reclaimed
-- ARGV[3..]   ids of the permits, 16 bytes each
--
-- Reply: nil  granted
--        n    busy: time in ms until the first taken permit expires, -1 if none does
--
-- Idempotent: an id that is in the set is not counted again. Without a number nothing is reclaimed: permits
-- of a lost number are lost. Expired permits are looked up by a read, so the first write of a usual step is
-- the decrement, which a server that is out of memory refuses.
local permits, taken, lease, channel = KEYS[1], KEYS[2], tonumber(ARGV[1]), ARGV[2]
local ids = ids_from(ARGV, 3, #ARGV - 2)

local function first_expiry()
  local first = redis.call('zrangebyscore', taken, 0, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  return first[2] and tonumber(first[2])
end

local text = redis.call('get', permits)
local free = parse_integer(text)
if text and not free then
  return corrupt(NOT_PERMITS)
end

local now = now_in_ms()
local first = first_expiry()
local reclaimed = 0
if first and first <= now then
  local expired = redis.call('zrangebyscore', taken, 0, decimal(now), 'WITHSCORES')
  redis.call('zremrangebyscore', taken, 0, decimal(now))
  if free then
    reclaimed = #expired / 2
    free = redis.pcall('incrby', permits, reclaimed)
    if failed(free) then
      -- A user without permission for INCRBY must not lose permits.
      for i = 1, #expired, 2 do
        redis.pcall('zadd', taken, expired[i + 1], expired[i])
      end
      return free
    end
  end
  first = first_expiry()
end

local missing = {}
for i, expiry in ipairs(expiries_of(taken, ids)) do
  if not expiry then
    missing[#missing + 1] = ids[i]
  end
end

local reply = nil
if #missing > 0 and not (free and free >= #missing) then
  reply = first and first < NO_EXPIRY and first - now or -1
else
  if #missing > 0 then
    free = redis.call('decrby', permits, #missing)
  end
  local ok, failure = pcall(set_expiry, taken, ids, now + lease, 'GT')
  if not ok then
    -- A user without permission to write to the set must not use up the number.
    if #missing > 0 then
      pcall(remove, taken, missing)
      redis.pcall('incrby', permits, #missing)
    end
    return type(failure) == 'table' and failure or redis.error_reply('ERR ' .. tostring(failure))
  end
  local ttl = #missing > 0 and redis.call('pttl', permits) or -1
  if ttl > 0 then
    redis.pcall('pexpire', taken, ttl)
  end
end
if reclaimed > 0 then
  publish(channel, decimal(free))
end
return reply
