-- Shared by the scripts of the fair lock, after common.lua: its queue.
--
-- queue       Redisson's list of owners; the head is next
-- deadlines   Redisson's sorted set, owner -> epoch in ms. Redisson removes a head whose deadline has
--             passed by the clock of the Java client.
-- heartbeats  turnlock's hash, owner -> time of the last heartbeat, as epoch in ms by this server's clock.
--             Every owner in it is a waiter of turnlock, whose deadline turnlock ignores.
--
-- Redisson lowers the deadlines of all waiters behind one that leaves. While all waiters are turnlock's, no
-- client reads them, and turnlock lowers none: the cost of a turn does not grow with the queue. A waiter of
-- Redisson that joins then computes its deadline from one that is too late; the next heartbeat lowers both.
local WAIT_TIMEOUT = 300000 -- added to the deadlines behind each waiter: Redisson's fairLockWaitTimeout
local DEAD_AFTER = 4000 -- age of the last heartbeat at which a waiter of turnlock counts as dead
local HEARTBEATS_TTL = 600000 -- expiry of the heartbeats after the last write
local MAX_PAIRS = 1000 -- the number of deadlines in one ZADD: Lua limits the number of arguments

-- Returns whether waiters of Redisson are in the queue, which have no heartbeat.
local function is_shared(queue, heartbeats)
  return redis.call('llen', queue) ~= redis.call('hlen', heartbeats)
end

-- Sets deadlines: a list of deadline, owner, deadline, owner and so on. XX: a waiter without a deadline gets
-- none. A refusal, as when the server is out of memory, does no harm: the deadlines are then later than
-- necessary.
local function set_deadlines(deadlines, list)
  for first = 1, #list, 2 * MAX_PAIRS do
    local last = math.min(first + 2 * MAX_PAIRS - 1, #list)
    redis.pcall('zadd', deadlines, 'XX', unpack(list, first, last))
  end
end

-- Reads all deadlines, as a table of owner -> deadline.
local function read_deadlines(deadlines)
  local list, scores = redis.call('zrange', deadlines, 0, -1, 'WITHSCORES'), {}
  for i = 1, #list, 2 do
    scores[list[i]] = tonumber(list[i + 1])
  end
  return scores
end

-- Subtracts what departed waiters had added from the deadlines of the waiters behind them, from index `from`
-- on, if one of them is Redisson's.
local function reduce_deadlines(queue, deadlines, heartbeats, from, by)
  if not is_shared(queue, heartbeats) then
    return
  end
  local scores, reduced = read_deadlines(deadlines), {}
  for _, waiter in ipairs(redis.call('lrange', queue, from, -1)) do
    if scores[waiter] then
      reduced[#reduced + 1] = decimal(scores[waiter] - by)
      reduced[#reduced + 1] = waiter
    end
  end
  set_deadlines(deadlines, reduced)
end

-- Removes dead heads: waiters of turnlock whose last heartbeat is too old, and waiters of Redisson whose
-- deadline has passed or is missing (Redisson itself would wait for the latter forever). The deadlines behind
-- a waiter of Redisson are unchanged, as Redisson leaves them. Never removes an owner in `except`, the callers:
-- their request counts as a heartbeat, however late.
--
-- Returns the remaining head, or false; whether it is turnlock's; and whether a waiter was removed.
--
-- All keys are read before the first write, so a key of the wrong type fails the script before it changes
-- anything.
local function purge(lock, queue, deadlines, heartbeats, except)
  local head = redis.call('lindex', queue, 0)
  local has_removed, expired_ours, is_ours = false, 0, true
  while head and not except[head] do
    local heartbeat = redis.call('hget', heartbeats, head)
    is_ours = heartbeat ~= false
    if heartbeat then
      local age = now_in_ms() - (tonumber(heartbeat) or 0)
      if age < 0 then
        -- The clock was set back: the age counts from now on, not from when the clock has caught up.
        redis.pcall('hset', heartbeats, head, decimal(now_in_ms()))
      end
      if age <= DEAD_AFTER then
        break
      end
    end
    local deadline = redis.call('zscore', deadlines, head)
    if heartbeat then
      expired_ours = expired_ours + 1
    elseif deadline and tonumber(deadline) > now_in_ms() then
      break
    end
    redis.call('hlen', lock)
    redis.call('lpop', queue)
    redis.call('zrem', deadlines, head)
    redis.call('hdel', heartbeats, head)
    has_removed, is_ours = true, true
    head = redis.call('lindex', queue, 0)
  end
  if head and expired_ours > 0 then
    reduce_deadlines(queue, deadlines, heartbeats, 0, expired_ours * WAIT_TIMEOUT)
  end
  return head, is_ours, has_removed
end

-- Records the heartbeats of waiters. PEXPIRE comes first: it is allowed when the server is out of memory, and
-- a script that has written may continue. So waiters keep their positions then.
local function record_heartbeats(heartbeats, waiters)
  local exists = redis.call('pexpire', heartbeats, HEARTBEATS_TTL)
  local fields, now = {}, decimal(now_in_ms())
  for i, waiter in ipairs(waiters) do
    fields[2 * i - 1], fields[2 * i] = waiter, now
  end
  redis.call('hset', heartbeats, unpack(fields))
  if exists == 0 then
    redis.call('pexpire', heartbeats, HEARTBEATS_TTL)
  end
end

-- Returns the channel of one waiter, and the message that it should retry.
--
-- A waiter of Redisson has a channel of its own: the common channel, a colon and its owner id. All waiters of
-- a turnlock client share one, without the number in the owner id; the message is the owner id.
local function waiter_channel(channel, waiter, is_ours)
  if is_ours then
    return channel .. ':' .. (string.match(waiter, '^(.*):') or waiter), waiter
  end
  return channel .. ':' .. waiter, '0'
end

-- Publishes to one waiter that it should retry. Returns the number of receivers, or -2 if the user may not
-- publish.
local function notify(channel, waiter, is_ours)
  return publish(waiter_channel(channel, waiter, is_ours))
end

