-- Runs an operation on the count of a latch.
--
-- KEYS[1]  count: string (Redisson's format); deleted when it reaches zero
-- KEYS[2]  request record: the reply to this request
-- ARGV[1]  operation: set_once, count_down or delete
-- ARGV[2]  number: the count to set
-- ARGV[3]  channel; message 0: the count has reached zero, 1: it was set or deleted
--
-- Reply: set_once    1 set, 0 there is a count already
--        count_down  the new count, at least zero
--        delete      1 deleted, 0 there was no count
--
-- Idempotent: the reply is recorded, and a copy of the request gets it without any effect. GET fails on a key
-- of another type before anything is written.
local latch, record, op, number, channel = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]

local text = redis.call('get', latch)
local recorded = redis.call('get', record)
if recorded then
  return tonumber(recorded)
end
local count = parse_integer(text)
if text and not count and op ~= 'delete' then
  return redis.error_reply('CORRUPT a count that cannot be counted')
end

local step
if op == 'set_once' then
  step = text and { reply = 0 } or { reply = 1, command = { 'set', latch, number }, message = '1' }
elseif op == 'count_down' then
  step = { reply = 0, must_succeed = true }
  if text then
    local left = count - 1
    step.reply = math.max(left, 0)
    step.command = left > 0 and { 'decr', latch } or { 'del', latch }
    step.message = left == 0 and '0' or nil
  end
elseif op == 'delete' then
  step = text and { reply = 1, command = { 'del', latch }, message = '1' } or { reply = 0 }
  step.must_succeed = true
else
  return redis.error_reply('UNSUPPORTED a latch has no step ' .. op)
end
return finish(record, channel, step)
