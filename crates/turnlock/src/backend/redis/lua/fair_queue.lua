-- The queue of a fair lock: what the scripts of that lock have in common.
--
-- queue      Redisson's list of owners; the head is next
-- deadlines  Redisson's sorted set, owner -> epoch in ms. Java removes a head whose deadline has passed by Java's clock.
-- signs      a hash of ours, owner -> when that waiter last gave a sign of life, as epoch in ms by this server's clock.
--            Who stands in it is a waiter of ours, and for us its deadline means nothing.
local WAIT = 300000 -- what a waiter adds to the deadlines behind it: Redisson's fairLockWaitTimeout
local DEAD_AFTER = 4000 -- how long a waiter of ours is believed to live
local SIGNS_KEPT = 600000 -- how long signs stay when nobody writes them

local function text(number)
  return string.format('%.0f', number)
end

local read_time
-- This server's time in ms; asked only where it is needed, since a lock without a queue does not.
local function now()
  if not read_time then
    local time = redis.call('time')
    read_time = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  end
  return read_time
end

-- Takes back what waiters who are gone have added to the deadlines of those behind them, who stand from the place `from`
-- on. XX: who has no deadline gets none. Where this is refused, as ZADD is when the server is out of memory, it does no
-- harm: deadlines are longer than need be.
local function lower(queue, deadlines, from, by)
  for _, waiter in ipairs(redis.pcall('lrange', queue, from, -1)) do
    redis.pcall('zadd', deadlines, 'XX', 'INCR', text(-by), waiter)
  end
end

-- Removes heads that will not come: of ours, who gave no sign for too long; of Java's, whose deadline has passed or is
-- missing (Java itself would wait for such a one for good). The deadlines behind a Java waiter stay, as Java leaves them.
-- Gives back the head that is left, or false, and whether somebody was removed. The `caller` is not: its call is a sign
-- of life, however late.
--
-- All keys are read before the first write, so that one of another type makes the script fail with nothing done.
local function purge(lock, queue, deadlines, signs, caller)
  local head = redis.call('lindex', queue, 0)
  if head then
    redis.call('hlen', lock)
  end
  local removed, ours = false, 0
  while head and head ~= caller do
    local deadline = redis.call('zscore', deadlines, head)
    local sign = redis.call('hget', signs, head)
    if sign then
      local age = now() - (tonumber(sign) or 0)
      if age < 0 then
        -- The clock was set back: its silence counts from now on, and not from when the clock is there again.
        redis.pcall('hset', signs, head, text(now()))
      end
      if age <= DEAD_AFTER then
        break
      end
      ours = ours + 1
    elseif deadline and tonumber(deadline) > now() then
      break
    end
    redis.call('lpop', queue)
    redis.call('zrem', deadlines, head)
    redis.call('hdel', signs, head)
    removed = true
    head = redis.call('lindex', queue, 0)
  end
  if head and ours > 0 then
    lower(queue, deadlines, 0, ours * WAIT)
  end
  return head, removed
end

-- The deadline of one who stands behind `before` (false: behind nobody, and then the holder's lease comes first).
local function deadline_behind(lock, deadlines, before)
  local deadline = before and redis.call('zscore', deadlines, before)
  return (tonumber(deadline) or now() + math.max(redis.call('pttl', lock), 0)) + WAIT
end

-- Says that a waiter lives. The PEXPIRE comes first, since it is allowed when the server is out of memory, and a script
-- that has written something is let go on: so waiters keep their places then.
local function show_life(signs, owner)
  local known = redis.call('pexpire', signs, SIGNS_KEPT)
  redis.call('hset', signs, owner, text(now()))
  if known == 0 then
    redis.call('pexpire', signs, SIGNS_KEPT)
  end
end

-- Tells a waiter to look. The number of those who heard it, or -2 when this user may not publish.
local function tell(channel, waiter)
  local heard = redis.pcall(PUBLISH, channel .. ':' .. waiter, '0')
  return type(heard) == 'table' and -2 or heard
end

