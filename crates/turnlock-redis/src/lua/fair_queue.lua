-- Shared by the scripts of the fair lock, after common.lua: its queue.
--
-- queue       Redisson's list of owners; the head is next
-- deadlines   Redisson's sorted set, owner -> epoch in ms. Redisson removes a head whose deadline has
--             passed by the clock of the Java client.
-- heartbeats  turnlock's hash, owner -> time of the last heartbeat, as epoch in ms by this server's clock.
--             Every owner in it is a waiter of turnlock, whose deadline turnlock ignores.
local WAIT_TIMEOUT = 300000 -- added to the deadlines behind each waiter: Redisson's fairLockWaitTimeout
local DEAD_AFTER = 4000 -- age of the last heartbeat at which a waiter of turnlock counts as dead
local HEARTBEATS_TTL = 600000 -- expiry of the heartbeats after the last write

-- Subtracts what departed waiters had added from the deadlines of the waiters behind them, from index `from`
-- on. XX: a waiter without a deadline gets none. A refusal, as of ZADD when the server is out of memory, does
-- no harm: the deadlines are then longer than necessary.
local function reduce_deadlines(queue, deadlines, from, by)
  for _, waiter in ipairs(redis.pcall('lrange', queue, from, -1)) do
    redis.pcall('zadd', deadlines, 'XX', 'INCR', decimal(-by), waiter)
  end
end

-- Removes dead heads: waiters of turnlock whose last heartbeat is too old, and waiters of Redisson whose
-- deadline has passed or is missing (Redisson itself would wait for the latter forever). The deadlines behind
-- a waiter of Redisson are unchanged, as Redisson leaves them. Returns the remaining head, or false, and
-- whether a waiter was removed. Never removes `except`, the calling owner: its request counts as a heartbeat,
-- however late.
--
-- All keys are read before the first write, so a key of the wrong type fails the script before it changes
-- anything.
local function purge(lock, queue, deadlines, heartbeats, except)
  local head = redis.call('lindex', queue, 0)
  if head then
    redis.call('hlen', lock)
  end
  local has_removed, expired_ours = false, 0
  while head and head ~= except do
    local deadline = redis.call('zscore', deadlines, head)
    local heartbeat = redis.call('hget', heartbeats, head)
    if heartbeat then
      local age = now_in_ms() - (tonumber(heartbeat) or 0)
      if age < 0 then
        -- The clock was set back: the age counts from now on, not from when the clock has caught up.
        redis.pcall('hset', heartbeats, head, decimal(now_in_ms()))
      end
      if age <= DEAD_AFTER then
        break
      end
      expired_ours = expired_ours + 1
    elseif deadline and tonumber(deadline) > now_in_ms() then
      break
    end
    redis.call('lpop', queue)
    redis.call('zrem', deadlines, head)
    redis.call('hdel', heartbeats, head)
    has_removed = true
    head = redis.call('lindex', queue, 0)
  end
  if head and expired_ours > 0 then
    reduce_deadlines(queue, deadlines, 0, expired_ours * WAIT_TIMEOUT)
  end
  return head, has_removed
end

-- The deadline of a waiter behind `predecessor`; false: first in the queue, where the holder's lease comes
-- first.
local function deadline_behind(lock, deadlines, predecessor)
  local deadline = predecessor and redis.call('zscore', deadlines, predecessor)
  return (tonumber(deadline) or now_in_ms() + math.max(redis.call('pttl', lock), 0)) + WAIT_TIMEOUT
end

-- Records a heartbeat. PEXPIRE comes first: it is allowed when the server is out of memory, and a script that
-- has written may continue. So waiters keep their positions then.
local function record_heartbeat(heartbeats, owner)
  local exists = redis.call('pexpire', heartbeats, HEARTBEATS_TTL)
  redis.call('hset', heartbeats, owner, decimal(now_in_ms()))
  if exists == 0 then
    redis.call('pexpire', heartbeats, HEARTBEATS_TTL)
  end
end

-- Publishes to one waiter that it should retry. Returns the number of receivers, or -2 if the user may not
-- publish.
local function notify(channel, waiter)
  return publish(channel .. ':' .. waiter, '0')
end

