-- Lowers the hold count of an owner; at zero, ends the hold, or the owner's waiting, and tells the one who is next.
--
-- KEYS[1]  the lock
-- KEYS[2]  the queue
-- KEYS[3]  the deadlines of those in it
-- KEYS[4]  the signs of life of those in it that are ours
-- ARGV[1]  owner
-- ARGV[2]  target hold count: 0 ends the hold, and takes the owner from the queue if it stands there
-- ARGV[3]  channel; with a colon and the owner of a waiter it is that waiter's own
--
-- Reply: nil  the owner does not hold the lock
--        -1   lowered, or not above the target before
--        n    ended; n clients heard of it
--        -2   ended, but this user may not publish: nobody was told
--
-- May be sent twice: the second time finds nothing to do. Never creates. All that it must do is allowed when the server
-- is out of memory.
local lock, queue, deadlines, signs = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, target, channel = ARGV[1], ARGV[2], ARGV[3]

local head, purged = purge(lock, queue, deadlines, signs)

if target ~= '0' then
  -- What is left of the hold is a lock's like any other.
  return release(lock, owner, target, channel)
end

local held = redis.call('hdel', lock, owner) == 1
local place = head and redis.call('lpos', queue, owner)
if place then
  redis.call('lrem', queue, 0, owner)
  head = redis.call('lindex', queue, 0)
  redis.call('zrem', deadlines, owner)
  redis.call('hdel', signs, owner)
  lower(queue, deadlines, place, WAIT)
elseif not held then
  -- What is left of one whom Java took from the queue.
  redis.call('zrem', deadlines, owner)
  redis.call('hdel', signs, owner)
end

if held then
  return head and tell(channel, head) or 0
end
-- Whoever went may have been the one who was told that the lock is free.
if head and (place or purged) and redis.call('exists', lock) == 0 then
  tell(channel, head)
end
return nil
