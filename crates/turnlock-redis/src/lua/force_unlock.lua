-- Ends the hold of any owner, and notifies waiters. The queue of a fair lock is unchanged.
--
-- KEYS[1]     lock
-- KEYS[2..4]  of a fair lock: queue, deadlines of the waiters, heartbeats of turnlock's waiters
-- ARGV[1]     channel; '' to publish nothing. The channel of a waiter of a fair lock begins with it
--
-- Reply: 1 it was held, 0 it was free
--
-- HLEN fails on a key of another type, so only locks are deleted.
local to_notify, message = waiters_channel(ARGV[1])
if redis.call('hlen', KEYS[1]) == 0 then
  return 0
end
redis.call('del', KEYS[1])
if to_notify then
  redis.pcall(PUBLISH, to_notify, message)
end
return 1
