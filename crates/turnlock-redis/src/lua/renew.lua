-- Extends the leases of many holds, or checks that they exist.
--
-- KEYS[i]      lock
-- ARGV[2i-1]   owner
-- ARGV[2i]     lease in milliseconds, which never shortens the remaining lease; 0 only checks
--
-- Reply: list of integers, one per lock: 1 held, 2 held for longer than the lease, 0 not held by the owner,
--        -1 failed
--
-- Lines are independent: a key of the wrong type fails only its own line. Holds of other owners are not
-- changed.
local function renew(lock, owner, lease)
  if not holds(lock, owner) then
    return 0
  end
  return renew_key(lock, lease)
end

return each_line(#ARGV / 2, renew, function(i)
  return KEYS[i], ARGV[2 * i - 1], tonumber(ARGV[2 * i])
end)
