-- What a fair lock looks like.
--
-- KEYS[1]  the lock
-- KEYS[2]  the queue, which is shown as it stands, with those who will not come
--
-- Reply: a picture, as of lock_inspect.lua
local holders = {}
for i, text in ipairs(redis.call('hgetall', KEYS[1])) do
  holders[#holders + 1] = text
  if i % 2 == 0 then
    holders[#holders + 1] = ''
    holders[#holders + 1] = ''
  end
end
return { redis.call('pttl', KEYS[1]), holders, redis.call('lrange', KEYS[2], 0, -1), '', '' }
