-- Extends the leases of many holds, or looks whether they stand.
--
-- KEYS[i]      a lock
-- ARGV[2i-1]   its owner
-- ARGV[2i]     its lease in milliseconds, which never shortens what is left; 0 only looks
--
-- Reply: a list, one number a lock: 1 the owner holds it, 2 for longer than that, 0 it does not,
--        -1 this one failed
--
-- Each line is on its own: a key of another type does not spoil the rest. Nothing is touched that is not the owner's.
local function renew(lock, owner, lease)
  if redis.call('hexists', lock, owner) == 0 then
    return 0
  end
  if lease > 0 then
    -- A write in any case, also where nothing changes: replicas acknowledge writes, and nothing else.
    local rest = redis.call('pttl', lock)
    redis.call('pexpire', lock, string.format('%.0f', math.max(rest, lease)))
    return renewed(rest, lease)
  end
  return 1
end

local outcomes = {}
for i = 1, #ARGV / 2 do
  local outcome, failure = line(renew, KEYS[i], ARGV[2 * i - 1], tonumber(ARGV[2 * i]))
  if failure then
    return failure
  end
  outcomes[i] = outcome
end
return outcomes
