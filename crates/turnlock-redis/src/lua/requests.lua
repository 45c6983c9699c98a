-- Shared by the scripts that operate on plain numbers.
--
-- A number does not know which requests have changed it. So each operation has a request id, and its result
-- is stored in a key of turnlock beside the number, the request record: a copy of the request gets the
-- recorded result and changes nothing.

-- Expiry of a record in milliseconds: an hour, longer than a client repeats a request. The client deletes the
-- record itself when it has the reply and no copy is in flight.
local RECORD_TTL = 3600000

-- Returns whether a command failed, given the reply of redis.pcall.
local function failed(result)
  return type(result) == 'table' and result.err ~= nil
end

-- Parses an integer. Returns nil if the text is none, or is too large for Lua to count exactly.
local function parse_integer(text)
  return text and #text <= 15 and string.match(text, '^-?%d+$') and tonumber(text) or nil
end

-- Formats a number for Redis.
local function decimal(number)
  return string.format('%.0f', number)
end

-- Writes a request record. Returns the reply of redis.pcall.
local function write_record(record, outcome)
  return redis.pcall('set', record, outcome, 'PX', RECORD_TTL)
end

-- As `write_record`, for a step that releases or deletes something and so must succeed when the server is out
-- of memory: the server then refuses commands that need memory, but only as the first write of a script.
-- PEXPIRE is a write, and needs none.
local function write_record_always(record, outcome)
  local result = write_record(record, outcome)
  if failed(result) then
    redis.call('pexpire', record, RECORD_TTL)
    result = write_record(record, outcome)
  end
  return result
end

-- Finishes a step: records its reply, runs its command, and publishes its message; a nil command or message
-- is skipped. The record comes first, so that no change is made which a copy of the request would make again.
local function finish(record, channel, step)
  local result = (step.must_succeed and write_record_always or write_record)(record, decimal(step.reply))
  if failed(result) then
    return result
  end
  if step.command then
    result = redis.pcall(unpack(step.command))
    if failed(result) then
      redis.call('del', record)
      return result
    end
  end
  if step.message then
    redis.pcall(PUBLISH, channel, step.message)
  end
  return step.reply
end

