-- Deletes the record of a request that got its reply, and of which no copy is in flight.
--
-- KEYS[1]  request record
--
-- Reply: 1 deleted, 0 there was none
return redis.call('del', KEYS[1])
