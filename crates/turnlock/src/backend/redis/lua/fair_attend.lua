-- Says that many waiters of fair locks are alive, and looks where they stand.
--
-- KEYS[4i-3]   a lock
-- KEYS[4i-2]   its queue
-- KEYS[4i-1]   the deadlines of those in it
-- KEYS[4i]     the signs of life of those in it that are ours
-- ARGV[2i-1]   the owner that waits
-- ARGV[2i]     the lock's channel; with a colon and the owner of a waiter it is that waiter's own
--
-- Reply: a list, one number a waiter: 2 it is first and the lock is free, 1 it is in the queue, 0 it is not,
--        -1 this one failed
--
-- May be sent twice, or late: gives nobody a place. Each line is on its own: a key of another type does not spoil the rest.

-- How far a deadline may fall behind what it should be. Java lowers it by what Java's waiters add, and time goes on.
local SLACK = 60000

local told = {}

local function attend(lock, queue, deadlines, signs, owner, channel)
  local free = redis.call('hlen', lock) == 0
  local head = purge(lock, queue, deadlines, signs, owner)
  local deadline = redis.call('zscore', deadlines, owner)
  local place = deadline and redis.call('lpos', queue, owner)
  if not place then
    redis.call('hdel', signs, owner)
    redis.call('lrem', queue, 0, owner)
    redis.call('zrem', deadlines, owner)
    return 0
  end
  show_life(signs, owner)
  local before = place > 0 and redis.call('lindex', queue, place - 1)
  local due = deadline_behind(lock, deadlines, before)
  if tonumber(deadline) < due - SLACK then
    redis.pcall('zadd', deadlines, 'XX', text(due), owner)
  end
  if not free then
    return 1
  end
  if head == owner then
    return 2
  end
  -- The message for the head may have been lost. Once is enough for all who stand behind it.
  if told[lock] ~= head then
    told[lock] = head
    tell(channel, head)
  end
  return 1
end

return each_line(#ARGV / 2, attend, function(i)
  local key, arg = 4 * i, 2 * i
  return KEYS[key - 3], KEYS[key - 2], KEYS[key - 1], KEYS[key], ARGV[arg - 1], ARGV[arg]
end)
