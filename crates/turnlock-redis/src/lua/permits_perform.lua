-- Runs an operation on the numbers of a permit semaphore.
--
-- KEYS[1]  number of free permits
-- KEYS[2]  request record: the reply to this request
-- KEYS[3]  taken permits: sorted set, id -> expiry
-- ARGV[1]  operation: set_once, add, set_total or delete
-- ARGV[2]  number: free permits to set or to add (negative to remove), or all permits to set, free and taken
-- ARGV[3]  channel on which a change is published
--
-- Reply: set_once        1 set, 0 there is a number already
--        add, set_total  number of free permits now, expired ones included
--        delete          1 deleted, 0 there was nothing
--
-- Idempotent: the reply is recorded, and a copy of the request gets it without any effect. GET and ZCARD fail
-- on keys of another type before anything is written.
local permits, record, taken = KEYS[1], KEYS[2], KEYS[3]
local op, number, channel = ARGV[1], ARGV[2], ARGV[3]

local text = redis.call('get', permits)
local taken_count = redis.call('zcard', taken)
local recorded = redis.call('get', record)
if recorded then
  return tonumber(recorded)
end
local free = parse_integer(text)
if text and not free and op ~= 'delete' then
  return redis.error_reply('CORRUPT a number of permits that cannot be counted')
end
local function expired()
  return redis.call('zcount', taken, 0, decimal(now_in_ms()))
end

local step
if op == 'set_once' then
  step = text and { reply = 0 } or { reply = 1, command = { 'set', permits, number }, message = number }
elseif op == 'add' then
  local delta = tonumber(number)
  step = { reply = (free or 0) + delta + expired(), command = { 'incrby', permits, number } }
  step.message = delta > 0 and number or nil
elseif op == 'set_total' and not text then
  step = { reply = tonumber(number) + expired(), command = { 'set', permits, number }, message = number }
elseif op == 'set_total' then
  local delta = tonumber(number) - (free + taken_count)
  step = { reply = free + delta + expired() }
  if delta ~= 0 then
    step.command = { 'incrby', permits, decimal(delta) }
    step.message = number
  end
elseif op == 'delete' then
  step = (text or taken_count > 0) and { reply = 1, command = { 'del', permits, taken } } or { reply = 0 }
  step.must_succeed = true
else
  return redis.error_reply('UNSUPPORTED a permit semaphore has no step ' .. op)
end
return finish(record, channel, step)
