-- Inspects a fair lock.
--
-- KEYS[1]  lock
-- KEYS[2]  queue, which is returned as stored, with waiters that are dead
--
-- Reply: a snapshot, see lock_inspect.lua
local holders = {}
for i, entry in ipairs(redis.call('hgetall', KEYS[1])) do
  holders[#holders + 1] = entry
  if i % 2 == 0 then
    holders[#holders + 1] = ''
    holders[#holders + 1] = ''
  end
end
return { redis.call('pttl', KEYS[1]), holders, redis.call('lrange', KEYS[2], 0, -1), '', '' }
