-- Sets the lease of a value to just this if it is the owner's, whatever is left of it.
--
-- KEYS[1]  the lock
-- ARGV[1]  owner
-- ARGV[2]  lease in milliseconds
--
-- Reply: 1 it is the owner's, 0 it is not and nothing was done
--
-- May be sent twice: the lease then counts from the second time.
if redis.call('get', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call('pexpire', KEYS[1], ARGV[2])
return 1
