-- Acquires the read side of a read-write lock, or raises the hold count of a reader.
--
-- KEYS[1]  lock
-- KEYS[2]  writer intent: owner of a waiting writer; string with an expiry
-- ARGV[1]  owner
-- ARGV[2]  target hold count: 1 may start a hold, 2 or more re-enters an existing one
-- ARGV[3]  lease in milliseconds; never shortens the remaining lease
-- ARGV[4]  prefix of the keys of its read holds
-- ARGV[5]  owner of the write hold under which this owner reads; '' for none
--
-- Reply: nil  granted
--        n    busy: a writer holds the lock or waits for it; ms until that expires, -1 if it never does
--        -3   the hold to re-enter does not exist
--
-- Idempotent: the target is absolute, and a count is only ever raised to it. New readers are refused while a
-- writer waits, so that a stream of readers does not starve it. A reader may always re-enter: otherwise it
-- and the writer would wait for each other. A reader under a write hold ignores waiting writers.
local lock, intent = KEYS[1], KEYS[2]
local owner, target, lease, prefix, under = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], ARGV[5]

local fields = redis.call('hmget', lock, 'mode', owner, owner .. ':write', under .. ':write')
local mode, count, own_writes, parent_writes = fields[1], fields[2], fields[3], fields[4]
local ttl = redis.call('pttl', lock)
if mode ~= 'read' and mode ~= 'write' and (mode or ttl ~= -2) then
  return not_a_lock(lock) or redis.error_reply('WRONGKIND a lock')
end

if count then
  count = parse_hold_count(count)
  if not count or target > MAX_HOLDS then
    return corrupt(NOT_A_COUNT)
  end
  local ttls = {}
  local remaining = remaining_of(prefix, owner, count, ttls)
  if remaining >= 0 then
    -- First the write that a server without memory refuses. A count without all of its hold keys does no
    -- harm: one key is enough for a valid hold.
    if count < target then
      redis.call('hset', lock, owner, target)
    end
    for number = 1, math.max(count, target) do
      local key = hold_key(prefix, owner, number)
      if (ttls[number] or -2) == -2 then
        redis.call('set', key, '1', 'PX', lease)
      else
        extend(key, ttls[number], lease)
      end
    end
    extend_or_touch(lock, ttl, math.max(lease, remaining))
    return nil
  end
end

if target > 1 then
  return -3
end
if mode == 'write' then
  if not own_writes and not parent_writes then
    return not_a_lock(lock) or ttl
  end
elseif under == '' then
  local intent_ttl = redis.call('pttl', intent)
  -- A key without expiry was not written by turnlock.
  if intent_ttl >= 0 then
    return intent_ttl
  end
end

-- The hold key expires by itself, so it may exist before its field.
redis.call('set', hold_key(prefix, owner, 1), '1', 'PX', lease)
local result = redis.pcall('hset', lock, 'mode', mode or 'read', owner, 1)
if not failed(result) and (not mode or ttl >= 0 and ttl < lease) then
  result = redis.pcall('pexpire', lock, decimal(lease))
end
if failed(result) then
  -- A user without permission to set an expiry must not leave a lock that never expires.
  redis.pcall('del', hold_key(prefix, owner, 1))
  redis.call('hdel', lock, owner)
  if not mode then
    redis.call('hdel', lock, 'mode')
  end
  return result
end
return nil
