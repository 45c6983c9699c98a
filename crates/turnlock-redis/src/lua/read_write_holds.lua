-- Shared by the scripts of the read-write lock, after common.lua.
--
-- The lock is a hash in Redisson's format: `mode` -> read or write, owner -> number of read holds,
-- owner:write -> number of write holds. Each read hold has its own key, numbered from 1, that expires with
-- the lease of that hold. A reader is valid while one of its keys exists; a field without any key is that of
-- an expired reader, and counts as absent.

-- A limit that turnlock never reaches. A larger count, written by another program, must not keep the server
-- busy.
local MAX_HOLDS = 65536

-- The key of one read hold; `prefix` is common to all hold keys of the lock.
local function hold_key(prefix, owner, number)
  return prefix .. owner .. ':rwlock_timeout:' .. number
end

-- Returns a string as a hold count, or nil if it is none.
local function parse_hold_count(text)
  local count = string.match(text, '^%d+$') and tonumber(text)
  if count and count <= MAX_HOLDS then
    return count
  end
  return nil
end

local NOT_A_COUNT = 'a hash with a hold count that is not a number'
local NOT_READ_WRITE = 'a hash that is not a read-write lock'

-- Returns the remaining lease of a reader in ms, which is the longest of its holds, and the number of that
-- hold. Negative if no hold exists, math.huge if one has no expiry. Fills `ttls`, if given, with the PTTL of
-- each hold.
local function remaining_of(prefix, owner, count, ttls)
  local remaining, longest = -1, 0
  for number = 1, count do
    local ttl = redis.call('pttl', hold_key(prefix, owner, number))
    if ttls then
      ttls[number] = ttl
    end
    if ttl == -1 then
      ttl = math.huge
    end
    if ttl > remaining then
      remaining, longest = ttl, number
    end
  end
  return remaining, longest
end

-- Reads the lock's hash: mode (nil if the key does not exist), readers and writers as owner -> count, and the
-- number of writers. Returns nil and an error reply if it is not a read-write lock.
local function read_state(lock)
  local fields = redis.call('hgetall', lock)
  local state = { readers = {}, writers = {}, writer_count = 0 }
  for i = 1, #fields, 2 do
    local field, value = fields[i], fields[i + 1]
    if field == 'mode' then
      state.mode = value
    else
      local count = parse_hold_count(value)
      if not count then
        return nil, corrupt(NOT_A_COUNT)
      end
      local writer = string.match(field, '^(.*):write$')
      if writer then
        state.writers[writer] = count
        state.writer_count = state.writer_count + 1
      else
        state.readers[field] = count
      end
    end
  end
  if #fields > 0 and state.mode ~= 'read' and state.mode ~= 'write' then
    return nil, corrupt(NOT_READ_WRITE)
  end
  return state
end

-- Returns the longest remaining lease of the valid readers other than `except` (negative if there is none),
-- and the owners of the expired ones.
local function other_readers(prefix, readers, except)
  local remaining, expired = -1, {}
  for reader, count in pairs(readers) do
    if reader ~= except then
      local own = remaining_of(prefix, reader, count)
      if own < 0 then
        expired[#expired + 1] = reader
      end
      remaining = math.max(remaining, own)
    end
  end
  return remaining, expired
end

-- Sets the expiry of a key. Never to 0, which would delete it. No expiry (math.huge) changes nothing.
local function expire(key, ms)
  if ms < math.huge then
    redis.call('pexpire', key, decimal(math.max(ms, 1)))
  end
end

-- Sets the expiry of a key if that is later than `ttl`, its PTTL. A key without expiry, or that does not
-- exist, is unchanged.
local function extend(key, ttl, ms)
  if ttl >= 0 and ttl < ms then
    expire(key, ms)
  end
end

-- As `extend`, but always a write, even if nothing changes: replicas acknowledge writes only.
local function extend_or_touch(key, ttl, ms)
  if ttl >= 0 then
    expire(key, math.max(ttl, ms))
  end
end

