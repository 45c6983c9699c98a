-- A step on the count of a latch.
--
-- KEYS[1]  the count: a string (as Redisson writes it); gone when it has come to zero
-- KEYS[2]  the memory of this request: its answer
-- ARGV[1]  what to do: set_once, count_down or delete
-- ARGV[2]  a number: the count to set
-- ARGV[3]  channel on which 0 tells that the count came to zero, 1 that it is another one or removed
--
-- Reply: set_once    1 set, 0 there was a count
--        count_down  what is left, zero at the least
--        delete      1 removed, 0 there was none
--
-- May be sent twice: the answer is remembered, and a copy gets it without doing anything.
-- GET fails on a key of another type before anything is written.
local latch, memory, deed, number, channel = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]

local text = redis.call('get', latch)
local known = redis.call('get', memory)
if known then
  return tonumber(known)
end
local count = whole(text)
if text and not count and deed ~= 'delete' then
  return redis.error_reply('CORRUPT the count of the latch is not a number that can be counted')
end

local step
if deed == 'set_once' then
  step = text and { answer = 0 } or { answer = 1, change = { 'set', latch, number }, payload = '1' }
elseif deed == 'count_down' then
  step = { answer = 0, gives_back = true }
  if text then
    local left = count - 1
    step.answer = math.max(left, 0)
    step.change = left > 0 and { 'decr', latch } or { 'del', latch }
    step.payload = left == 0 and '0' or nil
  end
elseif deed == 'delete' then
  step = text and { answer = 1, change = { 'del', latch }, payload = '1' } or { answer = 0 }
  step.gives_back = true
else
  return redis.error_reply('UNSUPPORTED a latch has no step ' .. deed)
end
return conclude(memory, channel, step)
