-- Shared by the scripts that operate on plain numbers, after common.lua.
--
-- A number does not know which requests have changed it. So each operation has a request id, and its result
-- is stored in a key of turnlock beside the number, the request record: a copy of the request gets the
-- recorded result and changes nothing.

-- Expiry of a record in milliseconds: an hour, longer than a client repeats a request. The client deletes the
-- record itself when it has the reply and no copy is in flight.
local RECORD_TTL = 3600000

-- Parses an integer. Returns nil if the text is none, or is too large for Lua to count exactly.
local function parse_integer(text)
  return text and #text <= 15 and string.match(text, '^-?%d+$') and tonumber(text) or nil
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

-- The error of a number of permits that is none.
local NOT_PERMITS = 'a number of permits that cannot be counted'

-- Runs an operation on the number at KEYS[1], once for the request record at KEYS[2]. ARGV[1] is the operation
-- and ARGV[3] the channel. GET fails on a key of another type before anything is written.
--
-- `plan(op, text, number)` returns what to do, given the text at the key (false if there is none) and the
-- number in it; nil if `primitive` does not have the operation:
--
-- reply         the reply, which is recorded
-- command       the command that changes the number; none if nothing changes
-- message       the message to publish; none if waiters need not know
-- must_succeed  whether it releases or deletes something
--
-- The record comes first, so that no change is made which a copy of the request would make again.
local function perform(primitive, not_a_number, plan)
  local record, op = KEYS[2], ARGV[1]
  local text = redis.call('get', KEYS[1])
  local recorded = redis.call('get', record)
  if recorded then
    return tonumber(recorded)
  end
  local number = parse_integer(text)
  if text and not number and op ~= 'delete' then
    return corrupt(not_a_number)
  end
  local step = plan(op, text, number)
  if not step then
    return redis.error_reply('UNSUPPORTED ' .. primitive .. ' has no step ' .. op)
  end

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
    publish(ARGV[3], step.message)
  end
  return step.reply
end

