-- Acquires a fair lock if it is the owner's turn, or raises the hold count of its owner.
--
-- KEYS[1]  lock: hash, owner -> hold count, with an expiry (Redisson's format)
-- KEYS[2]  queue
-- KEYS[3]  deadlines of the waiters
-- KEYS[4]  heartbeats of turnlock's waiters
-- ARGV[1]  owner
-- ARGV[2]  target hold count: 1 may start a hold, 2 or more re-enters an existing one
-- ARGV[3]  lease in milliseconds; never shortens the remaining lease
-- ARGV[4]  1: the owner waits and is added to the queue; 0: it does not wait, and the queue is unchanged
--
-- Reply: nil  granted
--        n    busy, and the owner is next: remaining lease of the holder in ms, -1 if it has no expiry
--        -1   busy, and other waiters are first: releases are published to them, not to this owner
--        -3   the hold to re-enter does not exist
--
-- Idempotent: the target is absolute, and a waiter keeps its position. A copy that arrives after the owner
-- has left adds a waiter without further heartbeats, which is removed when it has become the head.
local lock, queue, deadlines, heartbeats = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, target, lease, waits = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local head = purge(lock, queue, deadlines, heartbeats, owner)
local refusal, ttl, count = check(lock, owner, target)
if refusal == -3 or failed(refusal) then
  return refusal
end
if count then
  -- A holder needs no position in the queue.
  return grant(lock, owner, target, lease, ttl, count)
end

if ttl == -2 and (not head or head == owner) then
  local failure = grant(lock, owner, target, lease, ttl, count)
  if failure or not head then
    return failure
  end
  local popped = redis.pcall('lpop', queue)
  if failed(popped) then
    -- A user without permission for it must not leave a lock that blocks the queue.
    redis.call('hdel', lock, owner)
    return popped
  end
  redis.pcall('zrem', deadlines, owner)
  redis.pcall('hdel', heartbeats, owner)
  reduce_deadlines(queue, deadlines, 0, WAIT_TIMEOUT)
  return nil
end

if waits == '1' then
  if redis.call('zscore', deadlines, owner) then
    record_heartbeat(heartbeats, owner)
  else
    -- The first write is one that the server refuses when it is out of memory, before anything is changed.
    redis.call('hset', heartbeats, owner, decimal(now_in_ms()))
    redis.call('pexpire', heartbeats, HEARTBEATS_TTL)
    redis.call('lrem', queue, 0, owner)
    local tail = redis.call('lindex', queue, -1)
    redis.call('zadd', deadlines, decimal(deadline_behind(lock, deadlines, tail)), owner)
    redis.call('rpush', queue, owner)
    head = redis.call('lindex', queue, 0)
  end
end
if head and head ~= owner then
  return -1
end
return ttl
