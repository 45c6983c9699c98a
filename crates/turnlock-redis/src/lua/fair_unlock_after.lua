-- Sets the lease of a hold exactly, whatever its remaining lease is.
--
-- KEYS[1]  lock
-- KEYS[2]  queue
-- KEYS[3]  deadlines of the waiters
-- KEYS[4]  heartbeats of turnlock's waiters
-- ARGV[1]  owner
-- ARGV[2]  lease in milliseconds
-- ARGV[3]  common channel; a waiter's own channel is this, a colon and its owner id
--
-- Reply: 1 set, 0 the owner does not hold the lock
--
-- A copy restarts the lease. Never starts a hold. The head of the queue is notified if the lease becomes
-- shorter, because it waits for the old one to expire.
local lock, queue, deadlines, heartbeats = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, lease, channel = ARGV[1], ARGV[2], ARGV[3]

if redis.call('hexists', lock, owner) == 0 then
  return 0
end
local ttl = redis.call('pttl', lock)
local head = (ttl == -1 or ttl > tonumber(lease)) and purge(lock, queue, deadlines, heartbeats)
redis.call('pexpire', lock, lease)
if head then
  notify(channel, head)
end
return 1
