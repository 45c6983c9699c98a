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
local function add(owner, count, role, remaining)
  for _, entry in ipairs({ owner, tostring(count), role, remaining }) do
    holders[#holders + 1] = entry
  end
end
for _, reader in ipairs(state.readers) do
  local remaining = remaining_of(prefix, reader.owner, reader.count)
  if remaining >= 0 then
    add(reader.owner, reader.count, 'r', remaining < math.huge and string.format('%.0f', remaining) or '')
  end
end
for writer, count in pairs(state.writers) do
  add(writer, count, 'w', '')
end
return { redis.call('pttl', lock), holders, {}, '', '' }
