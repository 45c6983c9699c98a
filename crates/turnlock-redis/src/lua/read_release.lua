-- Lowers the hold count of a reader. At zero, ends its hold, and notifies waiters if it was the last hold.
--
-- KEYS[1]  lock
-- ARGV[1]  owner
-- ARGV[2]  target hold count: 0 ends the hold
-- ARGV[3]  channel on which the end of the last hold is published
-- ARGV[4]  prefix of the keys of read holds
--
-- Reply: nil  the owner holds no valid read hold; the field of an expired one is removed
--        -1   lowered, or already at or below the target
--        n    released; n subscribers received the message; 0 also if other holds remain, without a message
--        -2   released, but the user may not publish: no waiter is notified
--
-- Idempotent: a copy finds nothing to do. Never starts a hold. Every required command is allowed when the
-- server is out of memory. Fields of expired readers are removed as well. The lock then expires with the
-- longest remaining hold; under a writer, its expiry is unchanged. Of many readers, only some are looked at: the
-- fields of expired ones may remain, and the lock may last longer than the longest hold, by two thirds of what
-- that hold has left now.
local lock, owner, target, channel, prefix = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]

if target > 0 then
  local count = redis.call('hget', lock, owner)
  if not count then
    return nil
  end
  count = parse_hold_count(count)
  if not count then
    return corrupt(NOT_A_COUNT)
  end
  local remaining, longest = remaining_of(prefix, owner, count)
  if remaining >= 0 then
    if count <= target then
      return -1
    end
    -- The longest lease remains. The last release ends the hold whatever the count is, so a refusal does no
    -- harm.
    if longest > target then
      local renamed = redis.pcall('rename', hold_key(prefix, owner, longest), hold_key(prefix, owner, target))
      if failed(renamed) then
        return -1
      end
    end
    for number = target + 1, count do
      redis.call('del', hold_key(prefix, owner, number))
    end
    redis.pcall('hset', lock, owner, target)
    return -1
  end
end

-- From this number of fields on, readers are looked at by sample, so that the cost does not grow with their number.
local MANY = 12
local SAMPLE = 4

-- The part of the lock's expiry that another reader must last for, so that the expiry can stay as it is. Leases
-- that are renewed in time all do.
local LONG_ENOUGH = 0.6

-- Returns whether another reader keeps the lock, and its expiry can stay as it is. False if that is not known.
local function is_kept_by_another()
  local ttl = redis.call('pttl', lock)
  local sample = redis.pcall('hrandfield', lock, SAMPLE, 'WITHVALUES')
  if ttl < 0 or failed(sample) then
    return false
  end
  for i = 1, #sample, 2 do
    local other = sample[i] ~= owner and parse_hold_count(sample[i + 1])
    if other and remaining_of(prefix, sample[i], other) >= ttl * LONG_ENOUGH then
      return true
    end
  end
  return false
end

-- Ends the hold of one of many readers. Returns the number of its hold keys, or nil if more must be known.
local function release_one_of_many()
  local size = redis.pcall('hlen', lock)
  if failed(size) or size < MANY then
    return nil
  end
  local fields = redis.call('hmget', lock, 'mode', owner)
  local count = fields[1] == 'read' and fields[2] and parse_hold_count(fields[2])
  if not count or not is_kept_by_another() then
    return nil
  end
  local deleted = 0
  for number = 1, count do
    deleted = deleted + redis.call('del', hold_key(prefix, owner, number))
  end
  redis.call('hdel', lock, owner)
  return deleted
end

local deleted_keys = release_one_of_many()
if deleted_keys then
  return deleted_keys > 0 and 0 or nil
end

local state, failure = read_state(lock)
if failure then
  return failure
end
local count = state.readers[owner]
if not count then
  return nil
end
local remaining, expired = other_readers(prefix, state.readers, owner)

local deleted = 0
for number = 1, count do
  deleted = deleted + redis.call('del', hold_key(prefix, owner, number))
end
local receivers = 0
if remaining < 0 and state.writer_count == 0 then
  redis.call('del', lock)
  receivers = publish(channel, '0')
else
  redis.call('hdel', lock, owner)
  for _, reader in ipairs(expired) do
    redis.call('hdel', lock, reader)
  end
  if remaining >= 0 and state.mode == 'read' then
    pcall(expire, lock, remaining)
  end
end
if deleted == 0 then
  return nil
end
return receivers
