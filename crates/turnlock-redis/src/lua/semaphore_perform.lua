-- Runs an operation on the number of permits of a semaphore.
--
-- KEYS[1]  number of free permits
-- KEYS[2]  request record: the reply to this request
-- ARGV[1]  operation: set_once, add, release, drain or delete
-- ARGV[2]  number: permits to set, to add (negative to remove) or to release
-- ARGV[3]  channel on which the new number is published
--
-- Reply: set_once      1 set, 0 there is a number already
--        add, release  the new number
--        drain         the number before, which is zero now
--        delete        1 deleted, 0 there was none
--
-- Idempotent: the reply is recorded, and a copy of the request gets it without any effect. An expiry that a
-- user has set on the number is preserved. GET fails on a key of another type before anything is written.
local permits, record, op, number, channel = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]

local text = redis.call('get', permits)
local recorded = redis.call('get', record)
if recorded then
  return tonumber(recorded)
end
local free = parse_integer(text)
if text and not free and op ~= 'delete' then
  return redis.error_reply('CORRUPT a number of permits that cannot be counted')
end

local step
if op == 'set_once' then
  step = text and { reply = 0 } or { reply = 1, command = { 'set', permits, number }, message = number }
elseif op == 'add' or op == 'release' then
  local sum = (free or 0) + tonumber(number)
  step = { reply = sum, command = { 'incrby', permits, number }, message = decimal(sum) }
  step.must_succeed = op == 'release'
elseif op == 'drain' then
  step = text and { reply = free, command = { 'decrby', permits, text } } or { reply = 0 }
elseif op == 'delete' then
  step = text and { reply = 1, command = { 'del', permits } } or { reply = 0 }
  step.must_succeed = true
else
  return redis.error_reply('UNSUPPORTED a semaphore has no step ' .. op)
end
return finish(record, channel, step)
