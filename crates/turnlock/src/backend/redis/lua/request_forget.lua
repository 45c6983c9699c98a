-- Forgets a request that was answered, of which no copy is under way.
--
-- KEYS[1]  the memory of the request
--
-- Reply: 1 forgotten, 0 it was not remembered
return redis.call('del', KEYS[1])
