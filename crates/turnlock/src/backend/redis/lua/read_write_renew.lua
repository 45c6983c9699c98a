-- Extends the leases of many holds of read-write locks, or looks whether they stand.
--
-- KEYS[i]      a lock
-- ARGV[3i-2]   the owner of the hold
-- ARGV[3i-1]   its lease in milliseconds, which never shortens what is left; 0 only looks
-- ARGV[3i]     of a reader, the beginning of the keys of its holds; empty for a writer
--
-- Reply: a list, one number a hold: 1 the owner has it, 0 it does not, -1 this one failed
--
-- Each line is on its own: a key of another type does not spoil the rest. Of the holds, only the owner's own are touched.
-- The lock itself lasts at least as long as they do, also where a neighbour has shortened it.
local function renew(lock, owner, lease, below)
  local rest = lease
  if below == '' then
    if redis.call('hexists', lock, owner .. ':write') == 0 then
      return 0
    end
  else
    local count = redis.call('hget', lock, owner)
    if not count then
      return 0
    end
    count = hold_count(count)
    if not count then
      return corrupt(NO_COUNT)
    end
    local ttls = {}
    rest = rest_of(below, owner, count, ttls)
    if rest < 0 then
      return 0
    end
    if lease > 0 then
      for number = 1, count do
        local expiry = extend(hold_key(below, owner, number), ttls[number], lease)
        if type(expiry) == 'table' then
          return expiry
        end
      end
    end
  end
  if lease > 0 then
    local expiry = extend_or_confirm(lock, redis.call('pttl', lock), math.max(lease, rest))
    if type(expiry) == 'table' then
      return expiry
    end
  end
  return 1
end

local outcomes = {}
for i = 1, #ARGV / 3 do
  local outcome, failure = line(renew, KEYS[i], ARGV[3 * i - 2], tonumber(ARGV[3 * i - 1]), ARGV[3 * i])
  if failure then
    return failure
  end
  outcomes[i] = outcome
end
return outcomes
