-- Releases permits, and notifies waiters.
--
-- KEYS[1]     number of free permits
-- KEYS[2]     taken permits: sorted set, id -> expiry
-- ARGV[1]     channel on which the new number is published
-- ARGV[2..]   ids of the permits, 16 bytes each
--
-- Reply: nil  not held: a permit was missing or had expired. Those that were found are released and published
--             all the same, unless there is no number to add them to
--        n    released; n subscribers received the message
--        -2   released, but the user may not publish: no waiter is notified
--
-- Idempotent: a copy finds nothing to do. Never creates the number. The ids are removed before they are
-- counted: ZREM is allowed when the server is out of memory, and after it INCRBY is, too.
local permits, taken, channel = KEYS[1], KEYS[2], ARGV[1]
local ids = ids_from(ARGV, 2, #ARGV - 1)

local expiries = expiries_of(taken, ids)
local now = now_in_ms()
local found, held = 0, 0
for _, expiry in ipairs(expiries) do
  if expiry then
    found = found + 1
    held = held + (expiry > now and 1 or 0)
  end
end
if found == 0 then
  return nil
end

local text = redis.call('get', permits)
if text and not parse_integer(text) then
  return corrupt(NOT_PERMITS)
end
remove(taken, ids)
if not text then
  return nil
end
local free = redis.pcall('incrby', permits, found)
if failed(free) then
  for i, expiry in ipairs(expiries) do
    if expiry then
      redis.pcall('zadd', taken, decimal(expiry), ids[i])
    end
  end
  return free
end
local receivers = publish(channel, decimal(free))
if held < #ids then
  return nil
end
return receivers
