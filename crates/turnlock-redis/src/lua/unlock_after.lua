-- Sets the lease of a hold exactly, whatever its remaining lease is.
--
-- KEYS[1]     lock
-- KEYS[2..4]  of a fair lock: queue, deadlines of the waiters, heartbeats of turnlock's waiters
-- ARGV[1]     owner
-- ARGV[2]     lease in milliseconds
-- ARGV[3]     channel on which waiters are notified if the lease becomes shorter, because they wait for the old
--             one to expire; '' to publish nothing. The channel of a waiter of a fair lock begins with it
--
-- Reply: 1 set, 0 the owner does not hold the lock
--
-- A copy restarts the lease. Never starts a hold. PEXPIRE is allowed when the server is out of memory, and is
-- always a write, which replicas can acknowledge.
local lock, owner, lease, channel = KEYS[1], ARGV[1], ARGV[2], ARGV[3]

if not holds(lock, owner) then
  return 0
end
local ttl = channel ~= '' and redis.call('pttl', lock)
local to_notify, message
if ttl and (ttl == -1 or ttl > tonumber(lease)) then
  to_notify, message = waiters_channel(channel)
end
redis.call('pexpire', lock, lease)
if to_notify then
  redis.pcall(PUBLISH, to_notify, message)
end
return 1
