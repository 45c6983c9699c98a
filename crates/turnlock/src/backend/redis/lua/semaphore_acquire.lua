-- Takes permits of a semaphore, all or none.
--
-- KEYS[1]  the number of free permits: a string (as Redisson writes it)
-- KEYS[2]  the memory of this hold: 'taken k', 'given' or 'void'
-- ARGV[1]  how many
--
-- Reply: nil  granted
--        -1   refused: there are not so many, or no number at all
--        -3   this hold was given back, or called off before it began
--
-- May be sent twice: what is remembered as taken is not taken again. The memory is written first, so a server that is
-- out of memory refuses the step before anything is counted.
local permits, memory, wanted = KEYS[1], KEYS[2], ARGV[1]

local text = redis.call('get', permits)
local free = whole(text)
local noted = false
if free and free >= tonumber(wanted) then
  noted = redis.pcall('set', memory, 'taken ' .. wanted, 'NX', 'PX', REMEMBERED)
  if noted and not failed(noted) then
    local taken = redis.pcall('decrby', permits, wanted)
    if failed(taken) then
      redis.call('del', memory)
      return taken
    end
    return nil
  end
end

local known = redis.call('get', memory)
if known then
  if string.sub(known, 1, 5) == 'taken' then
    -- A write, although nothing changes: replicas acknowledge writes, and nothing else.
    redis.call('pexpire', memory, math.max(redis.call('pttl', memory), 1))
    return nil
  end
  return -3
end
if noted then
  return noted
end
if text and not free then
  return redis.error_reply('CORRUPT the number of permits is not a number that can be counted')
end
return -1
