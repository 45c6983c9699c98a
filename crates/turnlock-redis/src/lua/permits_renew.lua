-- Extends the leases of many holds of permits, or checks that they exist.
--
-- KEYS[i]  taken permits of a semaphore: sorted set, id -> expiry
-- ARGV     for each key in turn: lease in milliseconds, which never shortens the remaining lease (0 only
--          checks); number of permits of the hold; their ids, 16 bytes each
--
-- Reply: list of integers, one per hold: 1 held, 2 held for longer than the lease, 0 a permit is missing or
--        has expired, -1 failed
--
-- Lines are independent: a key of the wrong type fails only its own line. Permits of other holds are not
-- changed.
local now = now_in_ms()

local function renew(taken, ids, lease)
  local longest = 0
  for _, expiry in ipairs(expiries_of(taken, ids)) do
    if not expiry or expiry <= now then
      return 0
    end
    longest = math.max(longest, expiry)
  end
  if lease > 0 then
    set_expiry(taken, ids, now + lease, 'GT')
    return renewed(longest - now, lease)
  end
  return 1
end

local holds = {}
local next_argument = 1
while next_argument <= #ARGV do
  local lease, count = tonumber(ARGV[next_argument]), tonumber(ARGV[next_argument + 1])
  holds[#holds + 1] = { ids = ids_from(ARGV, next_argument + 2, count), lease = lease }
  next_argument = next_argument + 2 + count
end
return each_line(#holds, renew, function(i)
  return KEYS[i], holds[i].ids, holds[i].lease
end)
