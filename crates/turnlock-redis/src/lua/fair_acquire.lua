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
--        -1   busy, and other waiters are first. If the owner waits, Redisson's waiters are in the queue: one
--             of them may notify it, on the channel of its owner id
--        -3   the hold to re-enter does not exist
--        -4   queued, and only waiters of turnlock are first: they notify it on the channel of its client
--
-- Idempotent: the target is absolute, and a waiter keeps its position. A copy that arrives after the owner
-- has left adds a waiter without further heartbeats, which is removed when it has become the head.
local lock, queue, deadlines, heartbeats = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, target, lease, waits = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local ttl = redis.call('pttl', lock)
local count = ttl ~= -2 and redis.call('hget', lock, owner)
if count then
  if not tonumber(count) then
    return corrupt('a hash with a hold count that is not a number')
  end
  -- A holder needs no position in the queue.
  return grant(lock, owner, target, lease, ttl, count)
end
if target ~= '1' then
  return -3
end

if ttl == -2 then
  local head = purge(lock, queue, deadlines, heartbeats, { [owner] = true })
  if not head then
    return grant(lock, owner, target, lease, ttl, count)
  end
  if head == owner then
    return grant_to_head(lock, queue, deadlines, heartbeats, owner, lease)
  end
end

-- Returns the head of the queue, for an owner that was refused before or does not wait; or an error reply.
local function other_head()
  return ttl ~= -2 and not_a_lock(lock) or redis.call('lindex', queue, 0)
end

if waits ~= '1' then
  local head = other_head()
  if failed(head) then
    return head
  end
  return head and head ~= owner and -1 or ttl
end

local waiters, now = redis.call('hlen', heartbeats), now_in_ms()
if waiters == 0 then
  -- Later waiters need not check the holder again.
  local failure = ttl ~= -2 and not_a_lock(lock)
  if failure then
    return failure
  end
end
-- The first write is one that the server refuses when it is out of memory, before anything is changed. The
-- deadline is right if all waiters are turnlock's.
local before_me = now + math.max(ttl, 0)
local added = redis.pcall('zadd', deadlines, 'NX', decimal(before_me + (waiters + 1) * WAIT_TIMEOUT), owner)
if failed(added) and not redis.call('zscore', deadlines, owner) then
  return added
end
if added ~= 1 then
  local head = other_head()
  if failed(head) then
    return head
  end
  record_heartbeats(heartbeats, { owner })
  if not head or head == owner then
    return ttl
  end
  return is_shared(queue, heartbeats) and -1 or -4
end
local length = redis.pcall('rpush', queue, owner)
if failed(length) then
  redis.call('zrem', deadlines, owner)
  return length
end
redis.call('hset', heartbeats, owner, decimal(now))
if waiters == 0 then
  redis.call('pexpire', heartbeats, HEARTBEATS_TTL)
end
if length == 1 then
  return ttl
end
if length <= waiters + 1 then
  return -4
end
-- With waiters of Redisson, the deadline is that of the waiter before, and the time that each adds.
local predecessor = redis.call('lindex', queue, -2)
local expected = tonumber(redis.call('zscore', deadlines, predecessor)) or before_me
redis.pcall('zadd', deadlines, 'XX', decimal(expected + WAIT_TIMEOUT), owner)
return redis.call('hget', heartbeats, predecessor) and -4 or -1
