-- Sets a value if the key does not exist: the lock of redis-py, redsync and node-redlock.
--
-- lock   string with an expiry
-- owner  unique string
-- lease  in milliseconds; never shortens the remaining lease
--
-- Reply: nil  granted
--        n    busy: remaining lease of another value in ms, -1 if it has no expiry
--
-- Idempotent: a copy finds the owner's own value.
local function acquire_plain(lock, owner, lease)
  if redis.call('set', lock, owner, 'NX', 'PX', lease) then
    return nil
  end
  local ttl = redis.call('pttl', lock)
  if redis.call('get', lock) ~= owner then
    return ttl
  end
  -- Always a write, even if nothing changes: replicas acknowledge writes only.
  redis.call('pexpire', lock, string.format('%.0f', math.max(ttl, tonumber(lease))))
  return nil
end

