-- Sets the lease of a hold exactly, whatever its remaining lease is.
--
-- KEYS[1]  lock
-- ARGV[1]  owner
-- ARGV[2]  lease in milliseconds
-- ARGV[3]  channel on which waiters are notified if the lease becomes shorter; '' to publish nothing
--
-- Reply: 1 set, 0 the owner does not hold the lock
--
-- A copy restarts the lease. Never starts a hold. PEXPIRE is allowed when the server is out of memory, and is
-- always a write, which replicas can acknowledge.
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
