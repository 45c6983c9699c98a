-- Sets the lease of a value exactly if it is the owner's, whatever its remaining lease is.
--
-- KEYS[1]  lock
-- ARGV[1]  owner
-- ARGV[2]  lease in milliseconds
--
-- Reply: 1 set, 0 the value is not the owner's
--
-- A copy restarts the lease.
if redis.call('get', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call('pexpire', KEYS[1], ARGV[2])
return 1
