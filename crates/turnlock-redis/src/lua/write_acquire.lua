-- Acquires the write side of a read-write lock, or raises the hold count of the writer.
--
-- KEYS[1]  lock
-- KEYS[2]  writer intent: owner of a waiting writer; string with an expiry
-- ARGV[1]  owner
-- ARGV[2]  target hold count: 1 may start a hold, 2 or more re-enters an existing one
-- ARGV[3]  lease in milliseconds; never shortens the remaining lease
-- ARGV[4]  prefix of the keys of read holds
-- ARGV[5]  milliseconds for which new readers are refused if readers block this writer; 0: it does not wait
--
-- Reply: nil  granted
--        n    busy: remaining lease of the lock in ms, -1 if it has no expiry
--        -3   the hold to re-enter does not exist
--
-- Idempotent: the target is absolute, and a count is only ever raised to it. A late copy may write the intent
-- once more, which expires by itself. While a writer holds the lock no intent is written: readers and writers
-- race when it is released. The intent is best effort: the lock works if its key cannot be written or
-- deleted, or was written by another program.
local lock, intent = KEYS[1], KEYS[2]
local owner, target, lease = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local prefix, intent_ms = ARGV[4], ARGV[5]
local field = owner .. ':write'

local fields = redis.call('hmget', lock, 'mode', field)
local mode, count = fields[1], fields[2]
local ttl = redis.call('pttl', lock)
if count then
  count = parse_hold_count(count)
  if not count or target > MAX_HOLDS then
    return corrupt(NOT_A_COUNT)
  end
  if count < target then
    redis.call('hset', lock, field, target)
  end
  extend_or_touch(lock, ttl, lease)
  return nil
end
if target > 1 then
  return -3
end
if mode == 'write' then
  return not_a_lock(lock) or ttl
end
if ttl ~= -2 then
  if mode ~= 'read' then
    return not_a_lock(lock) or redis.error_reply('WRONGKIND a lock')
  end
  local state, failure = read_state(lock)
  if failure then
    return failure
  end
  local is_blocked = state.writer_count > 0
  for reader, reader_count in pairs(state.readers) do
    -- The first valid reader is enough. Expired ones are left to the next step that changes the lock: a
    -- refusal writes little.
    is_blocked = is_blocked or remaining_of(prefix, reader, reader_count) >= 0
  end
  if is_blocked then
    if intent_ms ~= '0' then
      local intending = redis.pcall('get', intent)
      if not intending or intending == owner then
        redis.pcall('set', intent, owner, 'PX', intent_ms)
      end
    end
    return ttl
  end
  redis.call('del', lock)
end

redis.call('hset', lock, 'mode', 'write', field, 1)
local expiry = redis.pcall('pexpire', lock, decimal(lease))
if failed(expiry) then
  -- A user without permission to set an expiry must not leave a lock that never expires.
  redis.call('hdel', lock, 'mode', field)
  return expiry
end
if redis.pcall('get', intent) == owner then
  redis.pcall('del', intent)
end
return nil
