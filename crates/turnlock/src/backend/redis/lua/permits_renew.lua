-- Extends the leases of many holds of permits, or looks whether they stand.
--
-- KEYS[i]  the taken permits of a semaphore: a sorted set, id -> end
-- ARGV     for each key in turn: its lease in milliseconds, which never shortens what is left, 0 only looks; how many
--          permits the hold has; and their ids, 16 bytes each
--
-- Reply: a list, one number a hold: 1 all of it is held, 2 for longer than that, 0 it is not,
--        -1 this one failed
--
-- Each line is on its own: a key of another type does not spoil the rest. Nothing is touched that is not the owner's.
local now = now_in_ms()

local function renew(taken, ids, lease)
  local longest = 0
  for _, ends in ipairs(ends_of(taken, ids)) do
    if not ends or ends <= now then
      return 0
    end
    longest = math.max(longest, ends)
  end
  if lease > 0 then
    take(taken, ids, now + lease)
    return renewed(longest - now, lease)
  end
  return 1
end

local holds = {}
local next_argument = 1
while next_argument <= #ARGV do
  local lease, count = tonumber(ARGV[next_argument]), tonumber(ARGV[next_argument + 1])
  holds[#holds + 1] = { ids = ids_among(ARGV, next_argument + 2, count), lease = lease }
  next_argument = next_argument + 2 + count
end
return each_line(#holds, renew, function(i)
  return KEYS[i], holds[i].ids, holds[i].lease
end)
