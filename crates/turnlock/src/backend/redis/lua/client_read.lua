-- What clients say of themselves.
--
-- KEYS[i]  the key of a client
-- ARGV[1]  how long it may be: of what is longer, a byte more than that is read
--
-- Reply: a list, one text a client: '' for one that says nothing, or where something else stands
local records = {}
for i, key in ipairs(KEYS) do
  local record = redis.pcall('getrange', key, 0, ARGV[1])
  if type(record) == 'table' and record.err and string.find(record.err, 'WRONGTYPE') then
    record = ''
  end
  -- Any other error is for the caller to see.
  if type(record) == 'table' then
    return record
  end
  records[i] = record
end
return records
