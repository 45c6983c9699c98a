-- Acquires a fenced lock, or raises the hold count of its owner. Issues a token each time.
--
-- KEYS[1]  lock: hash, owner -> hold count, with an expiry (Redisson's format)
-- KEYS[2]  last token: integer without expiry
-- ARGV[1]  owner
-- ARGV[2]  target hold count: 1 may start a hold, 2 or more re-enters an existing one
-- ARGV[3]  lease in milliseconds; never shortens the remaining lease
-- ARGV[4]  highest token that this client has seen
--
-- Reply: { token }  granted; the token is a decimal string
--        n          busy: remaining lease of another owner in ms, -1 if it has no expiry
--        -3         the hold to re-enter does not exist
--
-- Idempotent: the target is absolute, and a copy that issues one more token does no harm. A token is greater
-- than the last one, so Redisson's tokens continue from it; not less than this server's clock in
-- microseconds, so it increases although the last one was lost; and greater than what the client has seen.
-- Tokens stay far below 2^53, up to which Lua's numbers are exact.
local lock, token_key = KEYS[1], KEYS[2]
local owner, target, lease, highest = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

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
  return redis.error_reply('CORRUPT a hash with a hold count that is not a number')
end

local last = redis.call('get', token_key)
if last and not string.match(last, '^%d+$') or tonumber(last or 0) >= 9007199254740000 then
  return redis.error_reply('CORRUPT a fencing token that is not a number')
end
local time = redis.call('time')
local token = math.max(tonumber(last or 0) + 1, tonumber(time[1]) * 1000000 + tonumber(time[2]), highest + 1)
local text = string.format('%.0f', token)
redis.call('set', token_key, text)

if not count or tonumber(count) < tonumber(target) then
  redis.call('hset', lock, owner, target)
end
if ttl < tonumber(lease) then
  local expiry = redis.pcall('pexpire', lock, lease)
  if type(expiry) == 'table' and ttl == -2 then
    -- A user without permission to set an expiry must not leave a lock that never expires.
    redis.call('hdel', lock, owner)
    return expiry
  end
end
return { text }
