-- What the scripts on permit semaphores have in common, beside requests.lua.
--
-- A taken permit is a member of a sorted set: its id, 16 raw bytes, with the time of its end as the score, in
-- milliseconds of this server's clock since 1970. One whose end has passed is free, and put back by the next acquire.

-- The score of a permit without end, as Redisson writes it.
local NEVER = 922337203685477

-- How many ids go into one command. Lua passes some thousand arguments at once and no more.
local PIECE = 1000

local function now_in_ms()
  local time = redis.call('time')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- The ids among the arguments, from the given place on.
local function ids_among(arguments, from, count)
  local ids = {}
  for i = from, from + count - 1 do
    ids[#ids + 1] = arguments[i]
  end
  return ids
end

-- The ends of permits in the order of their ids; false for one that is not taken.
local function ends_of(taken, ids)
  local ends = {}
  for from = 1, #ids, PIECE do
    local piece = redis.call('zmscore', taken, unpack(ids, from, math.min(from + PIECE - 1, #ids)))
    for _, score in ipairs(piece) do
      ends[#ends + 1] = score and tonumber(score)
    end
  end
  return ends
end

-- Sets the ends of permits; `which` is a condition of ZADD. Gets through when the server is out of memory, so that no hold
-- ends for want of it: ZADD is then refused, but only as the first write of a script, and ZREM, which needs no memory and
-- finds no such id, is one. Who takes new permits counts them before, and is refused there.
--
-- It writes in any case, also where nothing changes: replicas acknowledge writes, and nothing else.
local function put(taken, ids, ends, which)
  local score = decimal(ends)
  local changed = 0
  for from = 1, #ids, PIECE do
    local arguments = { which, 'CH' }
    for i = from, math.min(from + PIECE - 1, #ids) do
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
    local first = ends_of(taken, { ids[1] })[1]
    redis.call('zrem', taken, '')
    redis.call('zadd', taken, 'XX', decimal(first + 1), ids[1])
    redis.call('zadd', taken, 'XX', decimal(first), ids[1])
  end
end

-- Takes permits, or extends them: never shortens what is left of one.
local function take(taken, ids, ends)
  put(taken, ids, ends, 'GT')
end

local function remove(taken, ids)
  for from = 1, #ids, PIECE do
    redis.call('zrem', taken, unpack(ids, from, math.min(from + PIECE - 1, #ids)))
  end
end

