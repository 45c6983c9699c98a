-- Reads enough of a key to tell whether it is a lock. Reads little of it, however large it is.
--
-- KEYS[1]  key
-- ARGV[1]  key of the queue, if it is a fair lock
-- ARGV[2]  key of the last token, if it is a fenced lock
-- ARGV[3]  key of the taken permits, if it is a permit semaphore
--
-- Reply: { type, field count, start of a string's value or the mode field of a hash, PTTL in ms,
--          queue exists (0 or 1), token exists, permits exist,
--          names of some fields, '' for a field whose value is too long for a count }
--
-- The other keys are not passed in KEYS: without permission for one of them, it is reported as absent.
local key = KEYS[1]

local function exists(command, name)
  local number = redis.pcall(command, name)
  return type(number) == 'number' and number > 0 and 1 or 0
end

local kind = redis.call('type', key).ok
local size, text, fields = 0, '', {}
if kind == 'hash' then
  size = redis.call('hlen', key)
  if redis.call('hstrlen', key, 'mode') <= 5 then
    text = redis.call('hget', key, 'mode') or ''
  end
  for i, field in ipairs(redis.call('hrandfield', key, 4)) do
    local is_count = field == 'mode' or redis.call('hstrlen', key, field) <= 20
    fields[i] = is_count and string.sub(field, 1, 80) or ''
  end
elseif kind == 'string' then
  text = redis.call('getrange', key, 0, 64)
end
local queue, token, permits = exists('exists', ARGV[1]), exists('exists', ARGV[2]), exists('zcard', ARGV[3])
return { kind, size, text, redis.call('pttl', key), queue, token, permits, fields }
