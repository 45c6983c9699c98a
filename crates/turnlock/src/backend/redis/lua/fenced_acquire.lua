-- Takes a lock with a token, or raises the hold count of an owner that has it.
--
-- KEYS[1]  the lock: a hash, owner -> hold count, with an expiry (as Redisson writes it)
-- KEYS[2]  the last token: an integer, which outlives every hold
-- ARGV[1]  owner
-- ARGV[2]  target hold count: 1 may begin a hold, 2 or more deepens one that must be there
-- ARGV[3]  lease in milliseconds; never shortens what is left
-- ARGV[4]  the highest token that this client has seen
--
-- Reply: { token }  granted; the token is a decimal text
--        n          refused: another owner holds it; n is the rest of its lease in ms, -1 when it has no end
--        -3         the hold that was to be deepened is gone
--
-- May be sent twice: the target is absolute, and a token that rises once more does no harm. The token is above the last
-- one, so that Java's tokens go on from it; not below this server's clock in microseconds, so that it rises although the
-- last one was lost; and above what the client has seen. Tokens stay far below 2^53, up to which Lua counts exactly.
local lock, token_key = KEYS[1], KEYS[2]
local owner, target, lease, seen = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

local ttl = redis.call('pttl', lock)
local count = ttl ~= -2 and redis.call('hget', lock, owner)
if not count then
  if target ~= '1' then
    return -3
  end
  if ttl ~= -2 then
    return not_a_lock(lock) or ttl
  end
elseif not tonumber(count) then
  return redis.error_reply('CORRUPT the hold count of the owner is not a number')
end

local last = redis.call('get', token_key)
if last and not string.match(last, '^%d+$') or tonumber(last or 0) >= 9007199254740000 then
  return redis.error_reply('CORRUPT the token beside the lock is not a number that can rise')
end
local time = redis.call('time')
local token = math.max(tonumber(last or 0) + 1, tonumber(time[1]) * 1000000 + tonumber(time[2]), seen + 1)
local text = string.format('%.0f', token)
redis.call('set', token_key, text)

if not count or tonumber(count) < tonumber(target) then
  redis.call('hset', lock, owner, target)
end
if ttl < tonumber(lease) then
  local expiry = redis.pcall('pexpire', lock, lease)
  if type(expiry) == 'table' and ttl == -2 then
    -- A user without the right to set an expiry must not leave a lock without end behind.
    redis.call('hdel', lock, owner)
    return expiry
  end
end
return { text }
