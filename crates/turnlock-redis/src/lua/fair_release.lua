-- Lowers the hold count of an owner. At zero, ends the hold, removes the owner from the queue, and notifies
-- the next waiter or grants it the lock.
--
-- KEYS[1]  lock
-- KEYS[2]  queue
-- KEYS[3]  deadlines of the waiters
-- KEYS[4]  heartbeats of turnlock's waiters
-- ARGV[1]  owner
-- ARGV[2]  target hold count: 0 ends the hold, and removes the owner from the queue if it is in it
-- ARGV[3]  common channel; `notify` makes the channel of a waiter from it
-- ARGV[4]  owner of the same client that is granted the lock if this ends the hold and it is next; '' for none.
--          If it is the owner itself, the owner returns to the head of the queue
-- ARGV[5]  its lease in milliseconds
--
-- Reply: nil  the owner does not hold the lock
--        -1   lowered, or already at or below the target
--        n    released; n subscribers received the message
--        -2   released, but the user may not publish: no waiter is notified
--        -3   released, and granted to the owner in ARGV[4]
--
-- Idempotent: a copy finds nothing to do. Starts a hold only in the step that ends one. Every required command
-- is allowed when the server is out of memory.
local lock, queue, deadlines, heartbeats = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, target, channel, next_owner, next_lease = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local head, is_ours, has_purged = purge(lock, queue, deadlines, heartbeats, { [next_owner] = true })

if target ~= '0' then
  -- The remaining hold is that of a reentrant lock.
  return release(lock, owner, target, channel)
end

if redis.call('hdel', lock, owner) == 1 then
  -- A holder has no position: it left the queue when it was granted the lock.
  if next_owner == owner and not failed(redis.pcall('lpush', queue, owner)) then
    redis.call('zadd', deadlines, decimal(now_in_ms() + WAIT_TIMEOUT), owner)
    record_heartbeats(heartbeats, { owner })
    return 0
  end
  if head and head == next_owner and redis.call('hlen', lock) == 0 then
    local ok, failure = pcall(grant_to_head, lock, queue, deadlines, heartbeats, head, next_lease)
    if ok and not failure then
      return -3
    end
  end
  return head and notify(channel, head, is_ours) or 0
end

-- A waiter that leaves, or what is left of one that Redisson removed from the queue.
local is_queued = redis.call('zscore', deadlines, owner)
local position = is_queued and is_shared(queue, heartbeats) and redis.call('lpos', queue, owner)
redis.call('zrem', deadlines, owner)
redis.call('hdel', heartbeats, owner)
local has_left = redis.call('lrem', queue, 0, owner) > 0
if position then
  reduce_deadlines(queue, deadlines, heartbeats, position, WAIT_TIMEOUT)
end
local was_head = has_left and head == owner
if was_head then
  head = redis.call('lindex', queue, 0)
  is_ours = head and redis.call('hget', heartbeats, head) ~= false
end
-- The waiter that left may be the one that was notified of the free lock. If the lock is held, the new head
-- may have to listen to a holder of Redisson.
if head and (was_head or ((has_left or has_purged) and redis.call('exists', lock) == 0)) then
  notify(channel, head, is_ours)
end
return nil
