-- Inspects a plain lock.
--
-- KEYS[1]  lock
--
-- Reply: a snapshot, see lock_inspect.lua
local value = redis.call('get', KEYS[1])
local holders = value and { { value, '1', '', '' } } or {}
return { redis.call('pttl', KEYS[1]), holders, {}, '', '' }
