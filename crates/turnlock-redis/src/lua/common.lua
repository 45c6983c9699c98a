-- Shared by the scripts of fair locks, read-write locks, semaphores and latches.

-- Returns whether a command failed, given the reply of redis.pcall.
local function failed(reply)
  return type(reply) == 'table' and reply.err ~= nil
end

-- Returns the error reply for a key that turnlock cannot work with.
local function corrupt(found)
  return redis.error_reply('CORRUPT ' .. found)
end

-- Formats a number for Redis.
local function decimal(number)
  return string.format('%.0f', number)
end

local time_read
-- This server's time in ms. Read on first use: a lock without a queue does not need it.
local function now_in_ms()
  if not time_read then
    local time = redis.call('time')
    time_read = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  end
  return time_read
end

-- Publishes to waiters. Returns the number of receivers, or -2 if the user may not publish.
local function publish(channel, message)
  local receivers = redis.pcall(PUBLISH, channel, message)
  return failed(receivers) and -2 or receivers
end

