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
-- user has set on the number is preserved.
local permits, number = KEYS[1], ARGV[2]

return perform('a semaphore', NOT_PERMITS, function(op, text, free)
  if op == 'set_once' then
    return text and { reply = 0 } or { reply = 1, command = { 'set', permits, number }, message = number }
  elseif op == 'add' or op == 'release' then
    local sum = (free or 0) + tonumber(number)
    local command = { 'incrby', permits, number }
    return { reply = sum, command = command, message = decimal(sum), must_succeed = op == 'release' }
  elseif op == 'drain' then
    return text and { reply = free, command = { 'decrby', permits, text } } or { reply = 0 }
  elseif op == 'delete' then
    return { reply = text and 1 or 0, command = text and { 'del', permits }, must_succeed = true }
  end
end)
