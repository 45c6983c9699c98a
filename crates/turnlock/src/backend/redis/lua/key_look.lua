-- What stands at a key, as far as it takes to tell whether that is a lock. However large it is, little of it is read.
--
-- KEYS[1]  the key
-- ARGV[1]  the queue beside it, if it is a fair lock
-- ARGV[2]  the token beside it, if it is a fenced lock
-- ARGV[3]  the taken permits, if it is a permit semaphore
--
-- Reply: its type; the number of its fields; the beginning of its value, or of a hash the mode of a read-write lock; the
--        rest of its lease in ms, as of PTTL; of queue, token and permits, 1 if there is such a key; the names of some
--        fields, '' for one whose value is no count
--
-- The other keys are no KEYS: a user may have no right to them, and then they are as good as not there.
local key = KEYS[1]

local function there(command, name)
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
local queue, token, taken = there('exists', ARGV[1]), there('exists', ARGV[2]), there('zcard', ARGV[3])
return { kind, size, text, redis.call('pttl', key), queue, token, taken, fields }
