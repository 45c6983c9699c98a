-- What a lock looks like.
--
-- KEYS[1]  the lock
--
-- Reply: a list: the rest of the lease in ms (-2 free, -1 without end), then owner and hold count in turn
local picture = { redis.call('pttl', KEYS[1]) }
for _, text in ipairs(redis.call('hgetall', KEYS[1])) do
  picture[#picture + 1] = text
end
return picture
