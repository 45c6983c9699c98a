-- Inspects a lock.
--
-- KEYS[1]  lock
-- KEYS[2]  last token, of a fenced lock only
--
-- Reply: a snapshot, { ttl, holders, queue, token, number }
--        ttl      remaining lease in ms, -2 free, -1 without expiry
--        holders  four entries per holder: owner, count, role ('' for a single holder), own lease ('' none)
--        queue    owners; empty here
--        token    last token, '' none
--        number   '' none
local holders = {}
for i, entry in ipairs(redis.call('hgetall', KEYS[1])) do
  holders[#holders + 1] = entry
  if i % 2 == 0 then
    holders[#holders + 1] = ''
    holders[#holders + 1] = ''
  end
end
local token = KEYS[2] and redis.call('get', KEYS[2])
return { redis.call('pttl', KEYS[1]), holders, {}, token or '', '' }
