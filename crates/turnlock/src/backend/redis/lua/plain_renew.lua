-- Extends the leases of many plain locks, or looks whether they stand.
--
-- KEYS[i]      a lock
-- ARGV[2i-1]   its owner
-- ARGV[2i]     its lease in milliseconds, which never shortens what is left; 0 only looks
--
-- Reply: a list, one number a lock: 1 the owner holds it, 2 for longer than that, 0 it does not,
--        -1 this one failed
local function renew(lock, owner, lease)
  if redis.call('get', lock) ~= owner then
    return 0
  end
  return renew_key(lock, lease)
end

return each_line(#ARGV / 2, renew, function(i)
  return KEYS[i], ARGV[2 * i - 1], tonumber(ARGV[2 * i])
end)
