-- Inspects a read-write lock.
--
-- KEYS[1]  lock
-- ARGV[1]  prefix of the keys of read holds
--
-- Reply: a snapshot, see lock_inspect.lua. The roles are 'r', with the longest lease of its holds, and 'w'.
--        Expired readers are left out.
local lock, prefix = KEYS[1], ARGV[1]

local state, failure = read_state(lock)
if failure then
  return failure
end
local holders = {}
for reader, count in pairs(state.readers) do
  local remaining = remaining_of(prefix, reader, count)
  if remaining >= 0 then
    local own_lease = remaining < math.huge and decimal(remaining) or ''
    holders[#holders + 1] = { reader, tostring(count), 'r', own_lease }
  end
end
for writer, count in pairs(state.writers) do
  holders[#holders + 1] = { writer, tostring(count), 'w', '' }
end
return { redis.call('pttl', lock), holders, {}, '', '' }
