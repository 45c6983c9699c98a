-- Ends the hold of any owner of a fair lock, and notifies the next waiter. The queue is unchanged.
--
-- KEYS[1]  lock
-- KEYS[2]  queue
-- KEYS[3]  deadlines of the waiters
-- KEYS[4]  heartbeats of turnlock's waiters
-- ARGV[1]  common channel; a waiter's own channel is this, a colon and its owner id
--
-- Reply: 1 it was held, 0 it was free
--
-- HLEN fails on a key of another type, so only locks are deleted.
local lock, queue, deadlines, heartbeats = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local head = purge(lock, queue, deadlines, heartbeats)
if redis.call('hlen', lock) == 0 then
  return 0
end
redis.call('del', lock)
if head then
  notify(ARGV[1], head)
end
return 1
