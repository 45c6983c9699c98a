-- Inspects a lock.
--
-- KEYS[1]  lock
-- KEYS[2]  of a fenced lock: last token. Of a fair lock: queue, which is returned as stored, with waiters that
--          are dead
-- ARGV[1]  what KEYS[2] is: 'token', 'queue', or '' if it is not passed
--
-- Reply: a snapshot, { ttl, holders, queue, token, number }
--        ttl      remaining lease in ms, -2 free, -1 without expiry
--        holders  for each holder, { owner, count, role ('' for a single holder), own lease ('' none) }
--        queue    owners
--        token    last token, '' none
--        number   '' none
local lock, other, role = KEYS[1], KEYS[2], ARGV[1]

local fields = redis.call('hgetall', lock)
local holders = {}
for i = 1, #fields, 2 do
  holders[#holders + 1] = { fields[i], fields[i + 1], '', '' }
end
local queue = role == 'queue' and redis.call('lrange', other, 0, -1) or {}
local token = role == 'token' and redis.call('get', other) or ''
return { redis.call('pttl', lock), holders, queue, token, '' }
