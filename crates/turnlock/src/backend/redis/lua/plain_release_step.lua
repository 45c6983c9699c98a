-- Deletes a value if it is the owner's.
--
-- lock
-- owner
--
-- Reply: nil  the value is not there, or another's; nothing was done
--        0    deleted; nobody is told, as with the libraries that share this format
local function release_plain(lock, owner)
  if redis.call('get', lock) ~= owner then
    return nil
  end
  redis.call('del', lock)
  return 0
end

