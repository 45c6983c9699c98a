-- Takes permits with a lease, all or none.
--
-- KEYS[1]     the number of free permits: a string (as Redisson writes it)
-- KEYS[2]     the taken permits: a sorted set, id -> end
-- ARGV[1]     lease in milliseconds; never shortens what is left
-- ARGV[2]     channel on which a new number is told, when permits whose leases ran out were put back
-- ARGV[3...]  the ids of the permits, 16 bytes each
--
-- Reply: nil  granted
--        n    refused: n is how long in ms until the first taken permit ends, -1 when none does
--
-- May be sent twice: what is there under its id is not counted again. Where there is no number, nothing is put back:
-- what was taken from a lost one is lost. Whether something ran out is looked up by a read, so that the first write of a
-- usual step is the count, which a server that is out of memory refuses.
local permits, taken, lease, channel = KEYS[1], KEYS[2], tonumber(ARGV[1]), ARGV[2]
local ids = ids_among(ARGV, 3, #ARGV - 2)

local function first_end()
  local first = redis.call('zrangebyscore', taken, 0, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  return first[2] and tonumber(first[2])
end

local text = redis.call('get', permits)
local free = whole(text)
if text and not free then
  return redis.error_reply('CORRUPT the number of permits is not a number that can be counted')
end

local now = now_in_ms()
local first = first_end()
local put_back = 0
if first and first <= now then
  local expired = redis.call('zrangebyscore', taken, 0, decimal(now), 'WITHSCORES')
  redis.call('zremrangebyscore', taken, 0, decimal(now))
  if free then
    put_back = #expired / 2
    free = redis.pcall('incrby', permits, put_back)
    if failed(free) then
      -- A user without the right to count must not lose them.
      for i = 1, #expired, 2 do
        redis.pcall('zadd', taken, expired[i + 1], expired[i])
      end
      return free
    end
  end
  first = first_end()
end

local missing = {}
for i, ends in ipairs(ends_of(taken, ids)) do
  if not ends then
    missing[#missing + 1] = ids[i]
  end
end

local reply = nil
if #missing > 0 and not (free and free >= #missing) then
  reply = first and first < NEVER and first - now or -1
else
  if #missing > 0 then
    free = redis.call('decrby', permits, #missing)
  end
  local done, failure = pcall(take, taken, ids, now + lease)
  if not done then
    -- A user without the right to write to the set must not use up the number.
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
if put_back > 0 then
  redis.pcall(PUBLISH, channel, decimal(free))
end
return reply
