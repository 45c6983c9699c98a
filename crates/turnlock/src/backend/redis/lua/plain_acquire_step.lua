-- Sets a value if there is none: the lock of redis-py, redsync and node-redlock.
--
-- lock   a string with an expiry
-- owner  a text that nobody else has
-- lease  in milliseconds; never shortens what is left
--
-- Reply: nil  granted
--        n    refused: another value stands there; n is the rest of its lease in ms, -1 when it has no end
--
-- May be sent twice: the second time finds the owner's own value.
local function acquire_plain(lock, owner, lease)
  if redis.call('set', lock, owner, 'NX', 'PX', lease) then
    return nil
  end
  local ttl = redis.call('pttl', lock)
  if redis.call('get', lock) ~= owner then
    return ttl
  end
  -- A write in any case, also where nothing changes: replicas acknowledge writes, and nothing else.
  redis.call('pexpire', lock, string.format('%.0f', math.max(ttl, tonumber(lease))))
  return nil
end

