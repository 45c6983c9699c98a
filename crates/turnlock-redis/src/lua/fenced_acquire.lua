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

local refusal, ttl, count = check(lock, owner, target)
if refusal then
  return refusal
end
local last = redis.call('get', token_key)
if last and not string.match(last, '^%d+$') or tonumber(last or 0) >= 9007199254740000 then
  return redis.error_reply('CORRUPT a fencing token that is not a number')
end
local time = redis.call('time')
local token = math.max(tonumber(last or 0) + 1, tonumber(time[1]) * 1000000 + tonumber(time[2]), highest + 1)
local text = string.format('%.0f', token)
redis.call('set', token_key, text)
return grant(lock, owner, target, lease, ttl, count) or { text }
