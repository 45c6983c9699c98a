-- Extends the leases of many holds of read-write locks, or checks that they exist.
--
-- KEYS[i]      lock
-- ARGV[4i-3]   owner of the hold
-- ARGV[4i-2]   lease in milliseconds, which never shortens the remaining lease; 0 only checks
-- ARGV[4i-1]   prefix of the keys of read holds
-- ARGV[4i]     side: read or write
--
-- Reply: list of integers, one per hold: 1 held, 2 held for longer than the lease, 0 not held by the owner,
--        -1 failed
--
-- Lines are independent: a key of the wrong type fails only its own line. Holds of other owners are not
-- changed. The lock itself lasts at least as long as the hold, also if another client has shortened it.
local function renew(lock, owner, lease, prefix, is_writer)
  local remaining, own = lease, lease
  if is_writer then
    if redis.call('hexists', lock, owner .. ':write') == 0 then
      return 0
    end
  else
    local count = redis.call('hget', lock, owner)
    if not count then
      return 0
    end
    count = parse_hold_count(count)
    if not count then
      return corrupt(NOT_A_COUNT)
    end
    local ttls = {}
    remaining = remaining_of(prefix, owner, count, ttls)
    if remaining < 0 then
      return 0
    end
    own = remaining
    for number = 1, count do
      -- A lease of 0 extends nothing.
      extend(hold_key(prefix, owner, number), ttls[number], lease)
    end
  end
  if lease == 0 then
    return 1
  end
  local ttl = redis.call('pttl', lock)
  extend_or_touch(lock, ttl, math.max(lease, remaining))
  if is_writer and renewed(ttl, lease) == 2 then
    -- Readers under this writer may be the reason.
    local state, failure = read_state(lock)
    if failure then
      return failure
    end
    own = ttl > other_readers(prefix, state.readers, nil) + lease / 100 + 2 and ttl or lease
  end
  return renewed(own, lease)
end

return each_line(#ARGV / 4, renew, function(i)
  local arg = 4 * i
  return KEYS[i], ARGV[arg - 3], tonumber(ARGV[arg - 2]), ARGV[arg - 1], ARGV[arg] == 'write'
end)
