-- What the scripts of the read-write lock have in common: this text stands before each of them.
--
-- The lock is a hash, as Redisson writes it: `mode` -> read or write, owner -> read holds, owner:write -> write holds.
-- Each read hold has a key of its own, numbered from 1, that lives for the lease of that hold. A reader stands while one
-- of its keys lives; a field whose keys are all gone is that of a reader who died, and counts as absent.

-- What a lock of ours never reaches. A count that somebody planted must not keep the server busy.
local MOST_HOLDS = 65536

-- The key of one read hold; `below` is the beginning that all such keys of the lock have.
local function hold_key(below, owner, number)
  return below .. owner .. ':rwlock_timeout:' .. number
end

-- A text as a hold count, or nil when it is none.
local function hold_count(text)
  local count = string.match(text, '^%d+$') and tonumber(text)
  if count and count <= MOST_HOLDS then
    return count
  end
  return nil
end

local function corrupt(what)
  return redis.error_reply('CORRUPT ' .. what)
end

local NO_COUNT = 'a hold count is not a number'
local NO_MODE = 'a hash that is not a read-write lock'

-- How many ms a reader stands from now: the longest rest of its holds, and the number of that hold. Less than 0 when none
-- lives, math.huge when one has no end. `ttls` is filled with what PTTL says of each, if it is given.
local function rest_of(below, owner, count, ttls)
  local rest, longest = -1, 0
  for number = 1, count do
    local ttl = redis.call('pttl', hold_key(below, owner, number))
    if ttls then
      ttls[number] = ttl
    end
    if ttl == -1 then
      ttl = math.huge
    end
    if ttl > rest then
      rest, longest = ttl, number
    end
  end
  return rest, longest
end

-- Everything that stands in the lock's hash: mode (nil when there is no lock), the readers as a list of owner and count,
-- the counts of writers by owner, and how many writers. Nothing and an error to reply when it is not a read-write lock.
local function look(lock)
  local fields = redis.call('hgetall', lock)
  local seen = { readers = {}, writers = {}, writing = 0 }
  for i = 1, #fields, 2 do
    local field, value = fields[i], fields[i + 1]
    if field == 'mode' then
      seen.mode = value
    else
      local count = hold_count(value)
      if not count then
        return nil, corrupt(NO_COUNT)
      end
      local writer = string.match(field, '^(.*):write$')
      if writer then
        seen.writers[writer] = count
        seen.writing = seen.writing + 1
      else
        seen.readers[#seen.readers + 1] = { owner = field, count = count }
      end
    end
  end
  if #fields > 0 and seen.mode ~= 'read' and seen.mode ~= 'write' then
    return nil, corrupt(NO_MODE)
  end
  return seen
end

-- The readers but one: the longest rest of those that stand (less than 0 when none does), and the owners of the others.
local function others(below, readers, but)
  local rest, stale = -1, {}
  for _, reader in ipairs(readers) do
    if reader.owner ~= but then
      local own_rest = rest_of(below, reader.owner, reader.count)
      if own_rest < 0 then
        stale[#stale + 1] = reader.owner
      end
      rest = math.max(rest, own_rest)
    end
  end
  return rest, stale
end

-- Sets the expiry of a key. Never to 0, which would delete it; what has no end cannot be said and changes nothing.
local function expire(key, ms)
  if ms == math.huge then
    return 1
  end
  return redis.pcall('pexpire', key, string.format('%.0f', math.max(ms, 1)))
end

-- The same where that is later than the expiry that the key has by the word of PTTL. What has no end, or is not there,
-- stays as it is.
local function extend(key, ttl, ms)
  if ttl >= 0 and ttl < ms then
    return expire(key, ms)
  end
  return 1
end

-- The same, but a write in any case, also where nothing changes: replicas acknowledge writes, and nothing else.
local function extend_or_confirm(key, ttl, ms)
  if ttl >= 0 then
    return expire(key, math.max(ttl, ms))
  end
  return 1
end

-- Tells those who wait. How many heard of it; -2 when this user may not publish.
local function tell(channel, message)
  local heard = redis.pcall(PUBLISH, channel, message)
  if type(heard) == 'table' then
    return -2
  end
  return heard
end

