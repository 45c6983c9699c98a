-- Lowers the hold count of an owner. At zero, ends the hold, removes the owner from the queue, and notifies
-- the next waiter.
--
-- KEYS[1]  lock
-- KEYS[2]  queue
-- KEYS[3]  deadlines of the waiters
-- KEYS[4]  heartbeats of turnlock's waiters
-- ARGV[1]  owner
-- ARGV[2]  target hold count: 0 ends the hold, and removes the owner from the queue if it is in it
-- ARGV[3]  common channel; a waiter's own channel is this, a colon and its owner id
--
-- Reply: nil  the owner does not hold the lock
--        -1   lowered, or already at or below the target
--        n    released; n subscribers received the message
--        -2   released, but the user may not publish: no waiter is notified
--
-- Idempotent: a copy finds nothing to do. Never starts a hold. Every required command is allowed when the
-- server is out of memory.
local lock, queue, deadlines, heartbeats = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, target, channel = ARGV[1], ARGV[2], ARGV[3]

local head, has_purged = purge(lock, queue, deadlines, heartbeats)

if target ~= '0' then
  -- The remaining hold is that of a reentrant lock.
  return release(lock, owner, target, channel)
end

local was_held = redis.call('hdel', lock, owner) == 1
local position = head and redis.call('lpos', queue, owner)
if position or not was_held then
  -- Without a position: remains of a waiter that Redisson removed from the queue.
  redis.call('zrem', deadlines, owner)
  redis.call('hdel', heartbeats, owner)
end
if position then
  redis.call('lrem', queue, 0, owner)
  head = redis.call('lindex', queue, 0)
  reduce_deadlines(queue, deadlines, position, WAIT_TIMEOUT)
end

if was_held then
  return head and notify(channel, head) or 0
end
-- The waiter that left may be the one that was notified of the free lock.
if head and (position or has_purged) and redis.call('exists', lock) == 0 then
  notify(channel, head)
end
return nil
