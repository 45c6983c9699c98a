-- Gives permits back, and tells those who wait.
--
-- KEYS[1]     the number of free permits
-- KEYS[2]     the taken permits: a sorted set, id -> end
-- ARGV[1]     channel on which the new number is told
-- ARGV[2...]  the ids of the permits, 16 bytes each
--
-- Reply: nil  not held: a permit was not there, or its lease had run out. What was there is given back all the same,
--             and told, unless there is no number to give it back to
--        n    given back; n clients heard of it
--        -2   given back, but this user may not publish: nobody was told
--
-- May be sent twice: the second time finds nothing to do. Never creates the number. The ids are removed before they are
-- counted: that is allowed when the server is out of memory, and after it the count is, too.
local permits, taken, channel = KEYS[1], KEYS[2], ARGV[1]
local ids = ids_among(ARGV, 2, #ARGV - 1)

local all_ends = ends_of(taken, ids)
local now = now_in_ms()
local found, held = 0, 0
for _, ends in ipairs(all_ends) do
  if ends then
    found = found + 1
    held = held + (ends > now and 1 or 0)
  end
end
if found == 0 then
  return nil
end

local text = redis.call('get', permits)
if text and not whole(text) then
  return redis.error_reply('CORRUPT the number of permits is not a number that can be counted')
end
remove(taken, ids)
if not text then
  return nil
end
local free = redis.pcall('incrby', permits, found)
if failed(free) then
  for i, ends in ipairs(all_ends) do
    if ends then
      redis.pcall('zadd', taken, decimal(ends), ids[i])
    end
  end
  return free
end
local heard = redis.pcall(PUBLISH, channel, decimal(free))
if held < #ids then
  return nil
end
if failed(heard) then
  return -2
end
return heard
