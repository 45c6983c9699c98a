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
local permits, taken, number = KEYS[1], KEYS[3], ARGV[2]
local taken_count = redis.call('zcard', taken)

-- The step that sets the number to `free`, or adds to it with INCRBY.
local function change(command, argument, free, message)
  local expired = redis.call('zcount', taken, 0, decimal(now_in_ms()))
  return { reply = free + expired, command = command and { command, permits, argument }, message = message }
end

return perform('a permit semaphore', NOT_PERMITS, function(op, text, free)
  if op == 'set_once' then
    return text and { reply = 0 } or { reply = 1, command = { 'set', permits, number }, message = number }
  elseif op == 'add' then
    local delta = tonumber(number)
    return change('incrby', number, (free or 0) + delta, delta > 0 and number)
  elseif op == 'set_total' and not text then
    return change('set', number, tonumber(number), number)
  elseif op == 'set_total' then
    local delta = tonumber(number) - (free + taken_count)
    local is_new = delta ~= 0
    return change(is_new and 'incrby', decimal(delta), free + delta, is_new and number)
  elseif op == 'delete' then
    local exists = text or taken_count > 0
    return { reply = exists and 1 or 0, command = exists and { 'del', permits, taken }, must_succeed = true }
  end
end)
