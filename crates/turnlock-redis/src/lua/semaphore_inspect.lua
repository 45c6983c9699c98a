-- Inspects a semaphore or a latch.
--
-- KEYS[1]  number
--
-- Reply: a snapshot, see lock_inspect.lua, without holders
return { redis.call('pttl', KEYS[1]), {}, {}, '', redis.call('get', KEYS[1]) or '' }
