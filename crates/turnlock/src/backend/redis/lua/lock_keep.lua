-- Sets the lease of a hold to just this, whatever is left of it.
--
-- KEYS[1]  the lock
-- ARGV[1]  owner
-- ARGV[2]  lease in milliseconds
-- ARGV[3]  channel on which those who wait are told of a lease that ends sooner than they know; empty to tell nobody
--
-- Reply: 1 the owner holds it, 0 it does not and nothing was done
--
-- May be sent twice: the lease then counts from the second time. Never creates. PEXPIRE is allowed when the server is out
-- of memory, and is a write in any case, which replicas can acknowledge.
local lock, owner, lease, channel = KEYS[1], ARGV[1], ARGV[2], ARGV[3]

if redis.call('hexists', lock, owner) == 0 then
  return 0
end
local ttl = redis.call('pttl', lock)
redis.call('pexpire', lock, lease)
if channel ~= '' and (ttl == -1 or ttl > tonumber(lease)) then
  redis.pcall(PUBLISH, channel, '0')
end
return 1
