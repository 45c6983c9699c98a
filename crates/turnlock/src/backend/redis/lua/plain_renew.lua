-- Extends the leases of many plain locks, or looks whether they stand.
--
-- KEYS[i]      a lock
-- ARGV[2i-1]   its owner
-- ARGV[2i]     its lease in milliseconds, which never shortens what is left; 0 only looks
--
-- Reply: a list, one number a lock: 1 the owner holds it, 0 it does not, -1 this one failed
local outcomes = {}
for i = 1, #ARGV / 2 do
  local lock = KEYS[i]
  local owner, lease = ARGV[2 * i - 1], tonumber(ARGV[2 * i])
  local value = redis.pcall('get', lock)
  local outcome = value == owner and 1 or 0
  if type(value) == 'table' then
    outcome = -1
  elseif outcome == 1 and lease > 0 then
    -- A write in any case, also where nothing changes: replicas acknowledge writes, and nothing else.
    local rest = math.max(redis.call('pttl', lock), lease)
    if type(redis.pcall('pexpire', lock, string.format('%.0f', rest))) == 'table' then
      outcome = -1
    end
  end
  outcomes[i] = outcome
end
return outcomes
