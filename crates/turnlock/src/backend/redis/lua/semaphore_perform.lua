-- A step on the number of permits of a semaphore.
--
-- KEYS[1]  the number of free permits
-- KEYS[2]  the memory of this request: its answer
-- ARGV[1]  what to do: set_once, add, release, drain or delete
-- ARGV[2]  a number: the permits to set, to add (below zero to take) or to give back
-- ARGV[3]  channel on which the new number is told
--
-- Reply: set_once      1 set, 0 there was a number
--        add, release  the new number
--        drain         the number before, which is zero now
--        delete        1 removed, 0 there was none
--
-- May be sent twice: the answer is remembered, and a copy gets it without doing anything.
-- An expiry that a user gave the number is kept. GET fails on a key of another type before anything is written.
local permits, memory, deed, number, channel = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]

local text = redis.call('get', permits)
local known = redis.call('get', memory)
if known then
  return tonumber(known)
end
local free = whole(text)
if text and not free and deed ~= 'delete' then
  return redis.error_reply('CORRUPT the number of permits is not a number that can be counted')
end

local step
if deed == 'set_once' then
  step = text and { answer = 0 } or { answer = 1, change = { 'set', permits, number }, payload = number }
elseif deed == 'add' or deed == 'release' then
  local sum = (free or 0) + tonumber(number)
  step = { answer = sum, change = { 'incrby', permits, number }, payload = decimal(sum) }
  step.gives_back = deed == 'release'
elseif deed == 'drain' then
  step = text and { answer = free, change = { 'decrby', permits, text } } or { answer = 0 }
elseif deed == 'delete' then
  step = text and { answer = 1, change = { 'del', permits } } or { answer = 0 }
  step.gives_back = true
else
  return redis.error_reply('UNSUPPORTED a semaphore has no step ' .. deed)
end
return conclude(memory, channel, step)
