-- Ends a hold, whoever has it, and tells those who wait.
--
-- KEYS[1]  the lock
-- ARGV[1]  channel on which the end is told; empty to tell nobody
--
-- Reply: 1 it was held, 0 it was free
--
-- HLEN fails on a key of another type, so that nothing but a lock is ever deleted.
if redis.call('hlen', KEYS[1]) == 0 then
  return 0
end
redis.call('del', KEYS[1])
if ARGV[1] ~= '' then
  redis.pcall(PUBLISH, ARGV[1], '0')
end
return 1
