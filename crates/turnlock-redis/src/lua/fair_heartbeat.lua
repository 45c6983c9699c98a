-- Records the heartbeats of many waiters of fair locks, and returns their positions.
--
-- KEYS[4i-3]   lock
-- KEYS[4i-2]   its queue
-- KEYS[4i-1]   deadlines of its waiters
-- KEYS[4i]     heartbeats of turnlock's waiters
-- ARGV[2i-1]   owner that waits
-- ARGV[2i]     common channel of the lock; a waiter's own channel is this, a colon and its owner id
--
-- Reply: list of integers, one per waiter: 2 first in the queue of a free lock, 1 in the queue, 0 not in the
--        queue, -1 failed
--
-- Idempotent, also when late: adds no waiter. Lines are independent: a key of the wrong type fails only its
-- own line.

-- How far a deadline may fall behind its expected value. Redisson lowers it by what its own waiters add, and
-- time passes.
local SLACK = 60000

local notified = {}

local function heartbeat(lock, queue, deadlines, heartbeats, owner, channel)
  local free = redis.call('hlen', lock) == 0
  local head = purge(lock, queue, deadlines, heartbeats, owner)
  local deadline = redis.call('zscore', deadlines, owner)
  local position = deadline and redis.call('lpos', queue, owner)
  if not position then
    redis.call('hdel', heartbeats, owner)
    redis.call('lrem', queue, 0, owner)
    redis.call('zrem', deadlines, owner)
    return 0
  end
  record_heartbeat(heartbeats, owner)
  local predecessor = position > 0 and redis.call('lindex', queue, position - 1)
  local expected = deadline_behind(lock, deadlines, predecessor)
  if tonumber(deadline) < expected - SLACK then
    redis.pcall('zadd', deadlines, 'XX', decimal(expected), owner)
  end
  if not free then
    return 1
  end
  if head == owner then
    return 2
  end
  -- The head may have missed its message. One more is enough for all waiters behind it.
  if notified[lock] ~= head then
    notified[lock] = head
    notify(channel, head)
  end
  return 1
end

return each_line(#ARGV / 2, heartbeat, function(i)
  local key, arg = 4 * i, 2 * i
  return KEYS[key - 3], KEYS[key - 2], KEYS[key - 1], KEYS[key], ARGV[arg - 1], ARGV[arg]
end)
