-- Takes a fair lock when it is the owner's turn, or raises the hold count of an owner that has it.
--
-- KEYS[1]  the lock: a hash, owner -> hold count, with an expiry (as Redisson writes it)
-- KEYS[2]  the queue
-- KEYS[3]  the deadlines of those in it
-- KEYS[4]  the signs of life of those in it that are ours
-- ARGV[1]  owner
-- ARGV[2]  target hold count: 1 may begin a hold, 2 or more deepens one that must be there
-- ARGV[3]  lease in milliseconds; never shortens what is left
-- ARGV[4]  1: the owner will wait, and gets a place in the queue; 0: it will not, and leaves no trace
--
-- Reply: nil  granted
--        n    refused, and the owner would be next: the rest of the holder's lease in ms, -1 when it has no end
--        -1   refused, and others are before it: they are told, not this one
--        -3   the hold that was to be deepened is gone
--
-- May be sent twice: the target is absolute, and who has a place keeps it. A copy that comes after the owner has left
-- gets a place that nobody keeps alive.
local lock, queue, deadlines, signs = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, target, lease, waits = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local head = purge(lock, queue, deadlines, signs, owner)
local ttl = redis.call('pttl', lock)
if ttl ~= -2 and redis.call('hget', lock, owner) then
  -- Who has it needs no place in the queue.
  return acquire(lock, owner, target, lease)
end
if target ~= '1' then
  return -3
end
local fault = ttl ~= -2 and not_a_lock(lock)
if fault then
  return fault
end

if ttl == -2 and (not head or head == owner) then
  redis.call('hset', lock, owner, 1)
  local done = redis.pcall('pexpire', lock, lease)
  if head and type(done) ~= 'table' then
    done = redis.pcall('lpop', queue)
  end
  if type(done) == 'table' then
    -- A user without the right to one of the two must not leave a lock behind that has no end or stops the queue.
    redis.call('hdel', lock, owner)
    return done
  end
  if head then
    redis.pcall('zrem', deadlines, owner)
    redis.pcall('hdel', signs, owner)
    lower(queue, deadlines, 0, WAIT)
  end
  return nil
end

if waits == '1' then
  if redis.call('zscore', deadlines, owner) then
    show_life(signs, owner)
  else
    -- The first write is one that is refused, with nothing done, when the server is out of memory.
    redis.call('hset', signs, owner, text(now()))
    redis.call('pexpire', signs, SIGNS_KEPT)
    redis.call('lrem', queue, 0, owner)
    local tail = redis.call('lindex', queue, -1)
    redis.call('zadd', deadlines, text(deadline_behind(lock, deadlines, tail)), owner)
    redis.call('rpush', queue, owner)
    head = redis.call('lindex', queue, 0)
  end
end
if head and head ~= owner then
  return -1
end
return ttl
