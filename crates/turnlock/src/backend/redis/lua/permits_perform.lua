-- A step on the numbers of a permit semaphore.
--
-- KEYS[1]  the number of free permits
-- KEYS[2]  the memory of this request: its answer
-- KEYS[3]  the taken permits: a sorted set, id -> end
-- ARGV[1]  what to do: set_once, add, set_total or delete
-- ARGV[2]  a number: the free permits to set, to add (below zero to take), or all permits to set, free and taken
-- ARGV[3]  channel on which a change is told
--
-- Reply: set_once        1 set, 0 there was a number
--        add, set_total  how many are free now, with those whose leases ran out
--        delete          1 removed, 0 there was nothing
--
-- May be sent twice: the answer is remembered, and a copy gets it without doing anything.
-- GET and ZCARD fail on keys of another type before anything is written.
local permits, memory, taken = KEYS[1], KEYS[2], KEYS[3]
local deed, number, channel = ARGV[1], ARGV[2], ARGV[3]

local text = redis.call('get', permits)
local size = redis.call('zcard', taken)
local known = redis.call('get', memory)
if known then
  return tonumber(known)
end
local free = whole(text)
if text and not free and deed ~= 'delete' then
  return redis.error_reply('CORRUPT the number of permits is not a number that can be counted')
end
local function expired()
  return redis.call('zcount', taken, 0, decimal(now_in_ms()))
end

local step
if deed == 'set_once' then
  step = text and { answer = 0 } or { answer = 1, change = { 'set', permits, number }, payload = number }
elseif deed == 'add' then
  local change = tonumber(number)
  step = { answer = (free or 0) + change + expired(), change = { 'incrby', permits, number } }
  step.payload = change > 0 and number or nil
elseif deed == 'set_total' and not text then
  step = { answer = tonumber(number) + expired(), change = { 'set', permits, number }, payload = number }
elseif deed == 'set_total' then
  local change = tonumber(number) - (free + size)
  step = { answer = free + change + expired() }
  if change ~= 0 then
    step.change = { 'incrby', permits, decimal(change) }
    step.payload = number
  end
elseif deed == 'delete' then
  step = (text or size > 0) and { answer = 1, change = { 'del', permits, taken } } or { answer = 0 }
  step.gives_back = true
else
  return redis.error_reply('UNSUPPORTED a permit semaphore has no step ' .. deed)
end
return conclude(memory, channel, step)
