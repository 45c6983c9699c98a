-- Deletes a value, whosever it is.
--
-- KEYS[1]  the lock
--
-- Reply: 1 it was there, 0 it was not
--
-- GET fails on a key of another type, so that nothing but a plain lock is ever deleted.
if not redis.call('get', KEYS[1]) then
  return 0
end
redis.call('del', KEYS[1])
return 1
