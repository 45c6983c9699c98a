-- Deletes a value if it is the owner's.
--
-- lock owner
--
-- Reply: nil  the value does not exist, or belongs to another owner; nothing changes
--        0    deleted; nothing is published, as in the libraries that share this format
local function release_plain(lock, owner)
  if redis.call('get', lock) ~= owner then
    return nil
  end
  redis.call('del', lock)
  return 0
end

