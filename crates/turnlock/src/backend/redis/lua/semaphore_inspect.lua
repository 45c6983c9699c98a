-- What a semaphore looks like; a latch, too.
--
-- KEYS[1]  the number
--
-- Reply: a picture, as of lock_inspect.lua, without holders
return { redis.call('pttl', KEYS[1]), {}, {}, '', redis.call('get', KEYS[1]) or '' }
