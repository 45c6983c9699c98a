-- Shared by the scripts about a hold that is a field of a hash: of a reentrant, spin, fenced or fair lock.
local function holds(lock, owner)
  return redis.call('hexists', lock, owner) == 1
end

