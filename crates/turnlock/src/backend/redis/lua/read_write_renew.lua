-- Extends the leases of many holds of read-write locks, or looks whether they stand.
--
-- KEYS[i]      a lock
-- ARGV[4i-3]   the owner of the hold
-- ARGV[4i-2]   its lease in milliseconds, which never shortens what is left; 0 only looks
-- ARGV[4i-1]   the beginning of the keys of read holds
-- ARGV[4i]     which hold: read or write
--
-- Reply: a list, one number a hold: 1 the owner has it, 2 for longer than that, 0 it does not,
--        -1 this one failed
--
-- Each line is on its own: a key of another type does not spoil the rest. Of the holds, only the owner's own are touched.
-- The lock itself lasts at least as long as they do, also where a neighbour has shortened it.
local function renew(lock, owner, lease, below, writes)
  local rest, own = lease, lease
  if writes then
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
    own = rest
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
    local ttl = redis.call('pttl', lock)
    local expiry = extend_or_confirm(lock, ttl, math.max(lease, rest))
    if type(expiry) == 'table' then
      return expiry
    end
    if writes and renewed(ttl, lease) == 2 then
      -- Those who read under it may be the reason.
      local seen, fault = look(lock)
      if fault then
        return fault
      end
      own = ttl > others(below, seen.readers, nil) + lease / 100 + 2 and ttl or lease
    end
    return renewed(own, lease)
  end
  return 1
end

return each_line(#ARGV / 4, renew, function(i)
  local arg = 4 * i
  return KEYS[i], ARGV[arg - 3], tonumber(ARGV[arg - 2]), ARGV[arg - 1], ARGV[arg] == 'write'
end)
