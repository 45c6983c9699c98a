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
-- longest remaining hold; under a writer, its expiry is unchanged.
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
