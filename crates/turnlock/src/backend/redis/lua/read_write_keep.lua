-- Sets the lease of a hold of a read-write lock to just this, whatever is left of it.
--
-- KEYS[1]  the lock
-- ARGV[1]  the owner of the hold
-- ARGV[2]  lease in milliseconds
-- ARGV[3]  channel on which those who wait are told of a lease that was shortened: the lock may end sooner than they know
-- ARGV[4]  the beginning of the keys of read holds
-- ARGV[5]  which hold: read or write
--
-- Reply: 1 the owner has it, 0 it does not and nothing was done
--
-- May be sent twice: the lease then counts from the second time. Never creates. A reader's lease is its own, and the lock
-- lasts as long as the longest of them, which is what Redisson reckons, too; under a writer, not shorter than before. A
-- writer's lease is that of the lock, which does not end before those who read under it.
local lock, owner, lease, channel, below, side = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5]

local seen, fault = look(lock)
if fault then
  return fault
end
local before = redis.call('pttl', lock)
if before == -1 then
  before = math.huge
end
local rest = math.max(lease, (others(below, seen.readers, side == 'read' and owner)))

local is_shorter = before > lease
if side == 'write' then
  if not seen.writers[owner] then
    return 0
  end
else
  local count = 0
  for _, reader in ipairs(seen.readers) do
    if reader.owner == owner then
      count = reader.count
    end
  end
  local own = rest_of(below, owner, count)
  if own < 0 then
    return 0
  end
  -- The end of a writer is not the business of those who read under it.
  is_shorter = seen.mode == 'read' and own > lease
  for number = 1, count do
    local expiry = expire(hold_key(below, owner, number), lease)
    if type(expiry) == 'table' then
      return expiry
    end
  end
  if seen.mode ~= 'read' then
    rest = math.max(rest, before)
  end
end

local expiry = expire(lock, rest)
if type(expiry) == 'table' then
  return expiry
end
if is_shorter then
  tell(channel, side == 'write' and '1' or '0')
end
return 1
