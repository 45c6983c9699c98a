-- What a read-write lock looks like.
--
-- KEYS[1]  the lock
-- ARGV[1]  the beginning of the keys of read holds
--
-- Reply: a picture, as of lock_inspect.lua; the roles are 'r', with the longest lease of its holds, and 'w'. Readers that
--        died are left out.
local lock, below = KEYS[1], ARGV[1]

local seen, fault = look(lock)
if fault then
  return fault
end
local holders = {}
local function add(owner, count, role, rest)
  for _, text in ipairs({ owner, tostring(count), role, rest }) do
    holders[#holders + 1] = text
  end
end
for _, reader in ipairs(seen.readers) do
  local rest = rest_of(below, reader.owner, reader.count)
  if rest >= 0 then
    add(reader.owner, reader.count, 'r', rest < math.huge and string.format('%.0f', rest) or '')
  end
end
for writer, count in pairs(seen.writers) do
  add(writer, count, 'w', '')
end
return { redis.call('pttl', lock), holders, {}, '', '' }
