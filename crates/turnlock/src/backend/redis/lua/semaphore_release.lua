-- Gives permits of a semaphore back, and tells those who wait.
--
-- KEYS[1]  the number of free permits
-- KEYS[2]  the memory of this hold: 'taken k', 'given' or 'void'
-- ARGV[1]  how many, where the memory does not say it
-- ARGV[2]  1 when it is unknown whether the hold ever began, or this server would remember it: then only what is
--          remembered as taken is given back, and a hold that is not remembered is called off; 0 when the hold is so old
--          that its memory may have expired
-- ARGV[3]  channel on which the new number is told
--
-- Reply: nil  nothing was given back: there is no number any more, or the hold had not begun
--        n    given back, now or by an earlier copy; n clients heard of it
--        -2   given back, but this user may not publish: nobody was told
--
-- May be sent twice: what is remembered as given back is not given back again. Never creates the number: where it is
-- gone, the permits are gone with it, and stay so when there is a new one ('void').
local permits, memory, wanted, unsure, channel = KEYS[1], KEYS[2], ARGV[1], ARGV[2] == '1', ARGV[3]

local known = redis.call('get', memory)
if known == 'given' then
  return 0
end
if known == 'void' then
  return nil
end
local given_back = known and string.match(known, '^taken (%d+)$') or not unsure and wanted
local text = redis.call('get', permits)

if not given_back or not text then
  local noted = remember_always(memory, 'void')
  if failed(noted) then
    return noted
  end
  return nil
end

if not whole(text) then
  return redis.error_reply('CORRUPT the number of permits is not a number that can be counted')
end
local noted = remember_always(memory, 'given')
if failed(noted) then
  return noted
end
local free = redis.pcall('incrby', permits, given_back)
if failed(free) then
  if known then
    remember(memory, known)
  else
    redis.call('del', memory)
  end
  return free
end
local heard = redis.pcall(PUBLISH, channel, decimal(free))
if failed(heard) then
  return -2
end
return heard
