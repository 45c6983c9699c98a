-- Sets the leases of a hold of permits exactly, whatever their remaining leases are.
--
-- KEYS[1]     taken permits: sorted set, id -> expiry
-- ARGV[1]     lease in milliseconds
-- ARGV[2]     channel on which waiters are notified if a lease becomes shorter
-- ARGV[3..]   ids of the permits, 16 bytes each
--
-- Reply: 1 set, 0 a permit is missing or has expired; nothing changes
--
-- A copy restarts the leases. Never takes a permit.
local taken, lease, channel = KEYS[1], tonumber(ARGV[1]), ARGV[2]
local ids = ids_from(ARGV, 3, #ARGV - 2)

local now = now_in_ms()
local is_shorter = false
for _, expiry in ipairs(expiries_of(taken, ids)) do
  if not expiry or expiry <= now then
    return 0
  end
  is_shorter = is_shorter or expiry > now + lease
end
-- The current millisecond has begun already: without one more, the permits would be free a part of it too early.
set_expiry(taken, ids, now + lease + 1, 'XX')
if is_shorter then
  -- The message is the number of waiters that should retry: Redisson wakes no more than that.
  publish(channel, decimal(#ids))
end
return 1
