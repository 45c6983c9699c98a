-- Reads client records.
--
-- KEYS[i]  key of a client
-- ARGV[1]  longest record in bytes; of a longer one, one byte more than that is read
--
-- Reply: list of strings, one per client: '' if the client has no record, or its key has another type
local records = {}
for i, key in ipairs(KEYS) do
  local record = redis.pcall('getrange', key, 0, ARGV[1])
  if type(record) == 'table' and record.err and string.find(record.err, 'WRONGTYPE') then
    record = ''
  end
  -- Any other error is the reply to the whole call.
  if type(record) == 'table' then
    return record
  end
  records[i] = record
end
return records
