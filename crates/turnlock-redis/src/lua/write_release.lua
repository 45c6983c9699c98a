-- Lowers the hold count of a writer. At zero, ends its hold and notifies waiters. Deletes its intent in any
-- case.
--
-- KEYS[1]  lock
-- KEYS[2]  writer intent: owner of a waiting writer
-- ARGV[1]  owner
-- ARGV[2]  target hold count: 0 ends the hold
-- ARGV[3]  channel on which the end is published
-- ARGV[4]  prefix of the keys of read holds
--
-- Reply: nil  the owner has no write hold
--        -1   lowered, or already at or below the target
--        n    released; n subscribers received the message
--        -2   released, but the user may not publish: no waiter is notified
--
-- Idempotent: a copy finds nothing to do. Never starts a hold. Read holds under the writer continue alone,
-- and the lock then lasts as long as the longest of them. The write hold ends with HDEL or DEL, which are
-- allowed when the server is out of memory. Commands after the first write of a script are not refused for
-- lack of memory, so the mode is set after it. If a server refuses that all the same, the readers are still
-- protected, and other owners are refused until they have released.
local lock, intent = KEYS[1], KEYS[2]
local owner, target, channel, prefix = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]

local state, failure = read_state(lock)
if failure then
  return failure
end
local count = state.writers[owner]
local had_intent = redis.pcall('get', intent) == owner
if had_intent then
  redis.pcall('del', intent)
end
if not count then
  if had_intent then
    -- Readers were refused because of a writer that has given up.
    publish(channel, '1')
  end
  return nil
end
if target > 0 then
  if count > target then
    -- Refused when the server is out of memory, which does no harm: the last release ends the hold in any
    -- case.
    redis.pcall('hset', lock, owner .. ':write', target)
  end
  return -1
end

local remaining, expired = other_readers(prefix, state.readers, nil)
if remaining < 0 and state.writer_count == 1 then
  redis.call('del', lock)
else
  redis.call('hdel', lock, owner .. ':write')
  for _, reader in ipairs(expired) do
    redis.call('hdel', lock, reader)
  end
  if state.writer_count == 1 then
    redis.pcall('hset', lock, 'mode', 'read')
    pcall(expire, lock, remaining)
  end
end
return publish(channel, '1')
