-- In place of lock_hold.lua for a plain lock, whose value is its owner.
local function holds(lock, owner)
  return redis.call('get', lock) == owner
end

