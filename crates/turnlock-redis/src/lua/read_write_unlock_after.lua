-- Sets the lease of a hold of a read-write lock exactly, whatever its remaining lease is.
--
-- KEYS[1]  lock
-- ARGV[1]  owner of the hold
-- ARGV[2]  lease in milliseconds
-- ARGV[3]  channel on which waiters are notified if the lease becomes shorter
-- ARGV[4]  prefix of the keys of read holds
-- ARGV[5]  side: read or write
--
-- Reply: 1 set, 0 the owner does not have the hold
--
-- A copy restarts the lease. Never starts a hold. A reader has its own lease, and the lock lasts as long as
-- the longest of them, as Redisson computes it; under a writer, its expiry is not shortened. A writer's lease
-- is that of the lock, which does not end before the readers under the writer.
local lock, owner, lease = KEYS[1], ARGV[1], tonumber(ARGV[2])
local channel, prefix, side = ARGV[3], ARGV[4], ARGV[5]

local state, failure = read_state(lock)
if failure then
  return failure
end
local before = redis.call('pttl', lock)
if before == -1 then
  before = math.huge
end
local remaining = math.max(lease, (other_readers(prefix, state.readers, side == 'read' and owner)))

local is_shorter = before > lease
if side == 'write' then
  if not state.writers[owner] then
    return 0
  end
else
  local count = state.readers[owner] or 0
  local own = remaining_of(prefix, owner, count)
  if own < 0 then
    return 0
  end
  -- Readers under a writer do not decide when the writer's hold ends.
  is_shorter = state.mode == 'read' and own > lease
  for number = 1, count do
    expire(hold_key(prefix, owner, number), lease)
  end
  if state.mode ~= 'read' then
    remaining = math.max(remaining, before)
  end
end

expire(lock, remaining)
if is_shorter then
  publish(channel, side == 'write' and '1' or '0')
end
return 1
