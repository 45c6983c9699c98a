-- Takes permits of a semaphore, all or none.
--
-- KEYS[1]  number of free permits: string (Redisson's format)
-- KEYS[2]  request record of this hold: 'taken k', 'given' (released) or 'void' (cancelled)
-- ARGV[1]  number of permits to take
--
-- Reply: nil  granted
--        -1   busy: too few permits, or no number at all
--        -3   this hold was released, or was cancelled before it started
--
-- Idempotent: a hold with a record is not taken again. The record is written first, so a server that is out
-- of memory refuses the step before anything is counted.
local permits, record, count = KEYS[1], KEYS[2], ARGV[1]

local text = redis.call('get', permits)
local free = parse_integer(text)
local written = false
if free and free >= tonumber(count) then
  written = redis.pcall('set', record, 'taken ' .. count, 'NX', 'PX', RECORD_TTL)
  if written and not failed(written) then
    local result = redis.pcall('decrby', permits, count)
    if failed(result) then
      redis.call('del', record)
      return result
    end
    return nil
  end
end

local recorded = redis.call('get', record)
if recorded then
  if string.sub(recorded, 1, 5) == 'taken' then
    -- Always a write, even if nothing changes: replicas acknowledge writes only.
    redis.call('pexpire', record, math.max(redis.call('pttl', record), 1))
    return nil
  end
  return -3
end
if written then
  return written
end
if text and not free then
  return corrupt(NOT_PERMITS)
end
return -1
