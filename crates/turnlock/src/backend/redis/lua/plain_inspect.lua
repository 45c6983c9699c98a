-- What a plain lock looks like.
--
-- KEYS[1]  the lock
--
-- Reply: a picture, as of lock_inspect.lua
local value = redis.call('get', KEYS[1])
local holders = value and { value, '1', '', '' } or {}
return { redis.call('pttl', KEYS[1]), holders, {}, '', '' }
