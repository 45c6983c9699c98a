-- Shared by the scripts of the permit semaphore, after requests.lua.
--
-- A taken permit is a member of a sorted set: its id, 16 raw bytes, with its expiry as the score, in epoch
-- milliseconds of this server's clock. An expired permit is free; the next acquire reclaims it.

-- The score of a permit without expiry, as Redisson writes it.
local NO_EXPIRY = 922337203685477

-- Ids per command. Lua's unpack is limited to some thousand values.
local CHUNK = 1000

-- Returns `count` ids from the arguments, starting at index `from`.
local function ids_from(arguments, from, count)
  local ids = {}
  for i = from, from + count - 1 do
    ids[#ids + 1] = arguments[i]
  end
  return ids
end

-- Returns the expiries of permits in the order of their ids; false for a permit that is not taken.
local function expiries_of(taken, ids)
  local expiries = {}
  for from = 1, #ids, CHUNK do
    local scores = redis.call('zmscore', taken, unpack(ids, from, math.min(from + CHUNK - 1, #ids)))
    for _, score in ipairs(scores) do
      expiries[#expiries + 1] = score and tonumber(score)
    end
  end
  return expiries
end

-- Sets the expiry of permits. `condition` is an option of ZADD: GT takes permits or extends them, and never
-- shortens a remaining lease; XX sets exactly the expiry of permits that are taken.
--
-- Also works when the server is out of memory, so that no hold is lost for lack of it: the server then refuses
-- ZADD, but only as the first write of a script. ZREM of an id that does not exist needs no memory and counts as
-- such a write. An acquire of new permits decrements their number before, and is refused there.
--
-- Always a write, even if nothing changes: replicas acknowledge writes only.
local function set_expiry(taken, ids, expiry, condition)
  local score = decimal(expiry)
  local changed = 0
  for from = 1, #ids, CHUNK do
    local arguments = { condition, 'CH' }
    for i = from, math.min(from + CHUNK - 1, #ids) do
      arguments[#arguments + 1] = score
      arguments[#arguments + 1] = ids[i]
    end
    local reply = redis.pcall('zadd', taken, unpack(arguments))
    if failed(reply) then
      redis.call('zrem', taken, '')
      reply = redis.call('zadd', taken, unpack(arguments))
    end
    changed = changed + reply
  end
  if changed == 0 then
    local first = expiries_of(taken, { ids[1] })[1]
    redis.call('zrem', taken, '')
    redis.call('zadd', taken, 'XX', decimal(first + 1), ids[1])
    redis.call('zadd', taken, 'XX', decimal(first), ids[1])
  end
end

local function remove(taken, ids)
  for from = 1, #ids, CHUNK do
    redis.call('zrem', taken, unpack(ids, from, math.min(from + CHUNK - 1, #ids)))
  end
end

