-- Shared by the scripts that acquire: checks that the hash at the key is a lock.

-- A lock has one field per holder; only read-write locks, which have a mode, have many.
local MAX_FIELDS = 8

-- Returns an error reply if no lock library wrote the hash, else nil.
--
-- A holder is a field <id>:<number> with an integer count; that of a writer ends in :write, that of a
-- Redisson transaction in the id of the transaction. A hash without such a field never becomes free, so
-- waiting for it would never end. A large hash is not read: without a mode it is not a lock.
local function not_a_lock(lock)
  -- A user without permission for HLEN gets the reply for a busy lock.
  local size = redis.pcall('hlen', lock)
  if type(size) == 'table' then
    return nil
  end
  if size <= MAX_FIELDS then
    local fields = redis.call('hgetall', lock)
    for i = 1, #fields, 2 do
      local field, value = fields[i], fields[i + 1]
      if
        string.match(value, '^%-?%d+$')
        and (string.match(field, '.:%-?%d+$') or string.match(field, '.:%-?%d+:'))
      then
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

