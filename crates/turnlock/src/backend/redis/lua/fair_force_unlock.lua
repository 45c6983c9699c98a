-- Ends a hold of a fair lock, whoever has it, and tells the one who is next. The queue stays.
--
-- KEYS[1]  the lock
-- KEYS[2]  the queue
-- KEYS[3]  the deadlines of those in it
-- KEYS[4]  the signs of life of those in it that are ours
-- ARGV[1]  channel; with a colon and the owner of a waiter it is that waiter's own
--
-- Reply: 1 it was held, 0 it was free
--
-- HLEN fails on a key of another type, so that nothing but a lock is ever deleted.
local lock, queue, deadlines, signs = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local head = purge(lock, queue, deadlines, signs)
if redis.call('hlen', lock) == 0 then
  return 0
end
redis.call('del', lock)
if head then
  tell(ARGV[1], head)
end
return 1
