-- Deletes the value of any owner.
--
-- KEYS[1]  lock
-- ARGV[1]  '': nothing is published
--
-- Reply: 1 deleted, 0 it did not exist
--
-- GET fails on a key of another type, so only plain locks are deleted.
if not redis.call('get', KEYS[1]) then
  return 0
end
redis.call('del', KEYS[1])
return 1
