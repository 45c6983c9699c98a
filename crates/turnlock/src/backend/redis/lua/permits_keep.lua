-- Sets the leases of a hold of permits to just this, whatever is left of them.
--
-- KEYS[1]     the taken permits: a sorted set, id -> end
-- ARGV[1]     lease in milliseconds
-- ARGV[2]     channel on which those who wait are told of permits that end sooner than they know
-- ARGV[3...]  the ids of the permits, 16 bytes each
--
-- Reply: 1 all of it is held, 0 it is not and nothing was done
--
-- May be sent twice: the lease then counts from the second time. Never creates.
local taken, lease, channel = KEYS[1], tonumber(ARGV[1]), ARGV[2]
local ids = ids_among(ARGV, 3, #ARGV - 2)

local now = now_in_ms()
local is_shorter = false
for _, ends in ipairs(ends_of(taken, ids)) do
  if not ends or ends <= now then
    return 0
  end
  is_shorter = is_shorter or ends > now + lease
end
put(taken, ids, now + lease, 'XX')
if is_shorter then
  -- The number is how many may look again: Java wakes no more than that.
  redis.pcall(PUBLISH, channel, decimal(#ids))
end
return 1
