-- Shared by the scripts about a hold of any lock but a read-write lock: a field of a hash.
local function holds(lock, owner)
  return redis.call('hexists', lock, owner) == 1
end

