-- Records the heartbeats of many waiters of fair locks, and returns their positions.
--
-- KEYS[4i-3]  lock i
-- KEYS[4i-2]  its queue
-- KEYS[4i-1]  deadlines of its waiters
-- KEYS[4i]    heartbeats of turnlock's waiters
-- ARGV        for each lock: its common channel, the number of owners that wait for it, and these owners
--
-- Reply: list of integers, one per waiter: 2 first in the queue of a free lock, 1 in the queue, 0 not in the
--        queue, -1 failed
--
-- Idempotent, also when late: adds no waiter. Locks are independent: a key of the wrong type fails only the
-- waiters of its own lock.

-- How far a deadline may differ from its expected value. Redisson lowers it by what its own waiters add, and
-- time passes.
local SLACK = 60000

-- The waiters that are in the queue, where all are turnlock's; as a table of owner -> true. The deadline of
-- each must not pass, and that of the last one must be right, because a waiter of Redisson that joins computes
-- its own from it. This costs the same for any length of the queue.
local function find_in_own_queue(lock, queue, deadlines, length, waiters)
  local holder_ends = now_in_ms() + math.max(redis.call('pttl', lock), 0)
  local tail = redis.call('lindex', queue, -1)
  local found, corrected = {}, {}
  for i, deadline in ipairs(redis.call('zmscore', deadlines, unpack(waiters))) do
    local waiter = waiters[i]
    if deadline then
      found[waiter] = true
      local earliest = holder_ends + (waiter == tail and length or 1) * WAIT_TIMEOUT
      local difference = tonumber(deadline) - earliest
      if difference < -SLACK or (waiter == tail and difference > SLACK) then
        corrected[#corrected + 1] = decimal(earliest)
        corrected[#corrected + 1] = waiter
      end
    end
  end
  set_deadlines(deadlines, corrected)
  return found
end

-- The same for a queue with waiters of Redisson, which is read as a whole. The deadline of each waiter of
-- turnlock is that of the waiter before, and the time that each adds. Redisson's deadlines are lowered only
-- as far as those before them, from which they were computed. Removes the heartbeats of waiters that Redisson
-- has removed: with them, the queue would count as shared for as long as it is used.
local function find_in_shared_queue(lock, queue, deadlines, heartbeats)
  local scores, is_ours, found, corrected = read_deadlines(deadlines), {}, {}, {}
  local beats = redis.call('hgetall', heartbeats)
  for i = 1, #beats, 2 do
    is_ours[beats[i]] = true
  end
  local before, lowered = now_in_ms() + math.max(redis.call('pttl', lock), 0), 0
  for _, waiter in ipairs(redis.call('lrange', queue, 0, -1)) do
    local deadline = scores[waiter]
    if deadline then
      found[waiter] = true
      local expected = before + WAIT_TIMEOUT
      if is_ours[waiter] then
        lowered = deadline - expected
        if math.abs(lowered) > SLACK then
          deadline = expected
        else
          lowered = 0
        end
      elseif lowered > 0 then
        deadline = math.min(deadline, math.max(deadline - lowered, expected))
      end
      if deadline ~= scores[waiter] then
        corrected[#corrected + 1] = decimal(deadline)
        corrected[#corrected + 1] = waiter
      end
      before = deadline
    end
  end
  set_deadlines(deadlines, corrected)
  for owner in pairs(is_ours) do
    if not found[owner] then
      redis.pcall('hdel', heartbeats, owner)
    end
  end
  return found
end

local function heartbeat(lock, queue, deadlines, heartbeats, channel, waiters)
  local is_free = redis.call('hlen', lock) == 0
  local callers = {}
  for _, waiter in ipairs(waiters) do
    callers[waiter] = true
  end
  local head, is_ours = purge(lock, queue, deadlines, heartbeats, callers)
  local length = redis.call('llen', queue)
  local found
  if length == redis.call('hlen', heartbeats) and length == redis.call('zcard', deadlines) then
    found = find_in_own_queue(lock, queue, deadlines, length, waiters)
  else
    found = find_in_shared_queue(lock, queue, deadlines, heartbeats)
  end

  local positions, alive = {}, {}
  for i, waiter in ipairs(waiters) do
    if found[waiter] then
      alive[#alive + 1] = waiter
      positions[i] = is_free and waiter == head and 2 or 1
    else
      redis.call('hdel', heartbeats, waiter)
      redis.call('lrem', queue, 0, waiter)
      redis.call('zrem', deadlines, waiter)
      positions[i] = 0
    end
  end
  if #alive > 0 then
    record_heartbeats(heartbeats, alive)
    if is_free and head and not callers[head] then
      -- The head may have missed its message.
      notify(channel, head, is_ours)
    end
  end
  return positions
end

local outcomes, key, first = {}, 1, 1
while first <= #ARGV do
  local channel, count = ARGV[first], tonumber(ARGV[first + 1])
  local waiters = { unpack(ARGV, first + 2, first + 1 + count) }
  local ok, positions = pcall(heartbeat, KEYS[key], KEYS[key + 1], KEYS[key + 2], KEYS[key + 3], channel, waiters)
  if not ok then
    local failure = server_error(positions)
    if failure then
      return failure
    end
    positions = {}
  end
  for i = 1, count do
    outcomes[#outcomes + 1] = positions[i] or -1
  end
  key, first = key + 4, first + 2 + count
end
return outcomes
