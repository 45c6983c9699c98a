-- Ends the hold of any owner, and notifies waiters.
--
-- KEYS[1]  lock
-- ARGV[1]  channel; '' to publish nothing
--
-- Reply: 1 it was held, 0 it was free
--
-- HLEN fails on a key of another type, so only locks are deleted.
if redis.call('hlen', KEYS[1]) == 0 then
  return 0
end
redis.call('del', KEYS[1])
if ARGV[1] ~= '' then
  redis.pcall(PUBLISH, ARGV[1], '0')
end
return 1
