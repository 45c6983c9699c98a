-- Sets the lease of a hold to just this, whatever is left of it.
--
-- KEYS[1]  the lock
-- KEYS[2]  the queue
-- KEYS[3]  the deadlines of those in it
-- KEYS[4]  the signs of life of those in it that are ours
-- ARGV[1]  owner
-- ARGV[2]  lease in milliseconds
-- ARGV[3]  channel; with a colon and the owner of a waiter it is that waiter's own
--
-- Reply: 1 the owner holds it, 0 it does not and nothing was done
--
-- May be sent twice: the lease then counts from the second time. Never creates. The head of the queue is told of a lease
-- that ends sooner than it knows.
local lock, queue, deadlines, signs = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, lease, channel = ARGV[1], ARGV[2], ARGV[3]

if redis.call('hexists', lock, owner) == 0 then
  return 0
end
local ttl = redis.call('pttl', lock)
local head = (ttl == -1 or ttl > tonumber(lease)) and purge(lock, queue, deadlines, signs)
redis.call('pexpire', lock, lease)
if head then
  tell(channel, head)
end
return 1
