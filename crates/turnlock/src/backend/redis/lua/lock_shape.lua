-- What stands before the scripts that may be refused a lock: is the hash at the key a lock at all?

-- Locks have one field for each holder; only those with a mode have many.
local MOST_FIELDS = 8

-- An error to reply when no lock library wrote the hash; nil when it is a lock.
--
-- A holder is a field <id>:<number> with an integer count; a writer's ends in :write, that of a Redisson transaction in the id
-- of the transaction. A hash without one never becomes free, so waiting for it would have no end. A large hash is not read:
-- without a mode it is not a lock.
local function not_a_lock(lock)
  -- A user without the right to count the fields is refused, as for a lock.
  local size = redis.pcall('hlen', lock)
  if type(size) == 'table' then
    return nil
  end
  if size <= MOST_FIELDS then
    local fields = redis.call('hgetall', lock)
    for i = 1, #fields, 2 do
      local field, value = fields[i], fields[i + 1]
      if string.match(value, '^%-?%d+$') and (string.match(field, '.:%-?%d+$') or string.match(field, '.:%-?%d+:')) then
        return nil
      end
    end
  else
    local mode = redis.call('hget', lock, 'mode')
    if mode == 'read' or mode == 'write' then
      return nil
    end
  end
  return redis.error_reply('CORRUPT a hash that is not a lock')
end

