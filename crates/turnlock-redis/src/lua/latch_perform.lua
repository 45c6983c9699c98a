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
-- Idempotent: the reply is recorded, and a copy of the request gets it without any effect.
local latch, number = KEYS[1], ARGV[2]

return perform('a latch', 'a count that cannot be counted', function(op, text, count)
  if op == 'set_once' then
    return text and { reply = 0 } or { reply = 1, command = { 'set', latch, number }, message = '1' }
  elseif op == 'count_down' then
    local left = (count or 0) - 1
    local step = { reply = math.max(left, 0), must_succeed = true }
    if text then
      step.command = left > 0 and { 'decr', latch } or { 'del', latch }
      step.message = left == 0 and '0'
    end
    return step
  elseif op == 'delete' then
    local step = text and { reply = 1, command = { 'del', latch }, message = '1' } or { reply = 0 }
    step.must_succeed = true
    return step
  end
end)
