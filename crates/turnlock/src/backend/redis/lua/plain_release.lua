-- Deletes a value if it is the owner's.
--
-- KEYS[1]  the lock
-- ARGV[1]  owner
--
-- Reply: nil  the value is not there, or another's; nothing was done
--        0    deleted; nobody is told, as with the libraries that share this format
if redis.call('get', KEYS[1]) ~= ARGV[1] then
  return nil
end
redis.call('del', KEYS[1])
return 0
