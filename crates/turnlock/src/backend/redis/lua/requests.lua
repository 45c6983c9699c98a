-- What the scripts on numbers have in common.
--
-- A bare number does not know who counted it. So each step on one has a request id, and its outcome is remembered in a
-- key of ours beside the number, the memory: a copy of the request gets the outcome of the first and counts no more.

-- How long that is, in milliseconds: an hour, longer than a client repeats a request. It removes the memory itself when
-- it has the answer and no copy is under way.
local REMEMBERED = 3600000

-- Whether a command failed, as told by redis.pcall.
local function failed(reply)
  return type(reply) == 'table' and reply.err ~= nil
end

-- The whole number that a text says. Nil when it says none, or one so large that Lua would not count it exactly.
local function whole(text)
  return text and #text <= 15 and string.match(text, '^-?%d+$') and tonumber(text) or nil
end

-- A number as Redis takes it.
local function decimal(number)
  return string.format('%.0f', number)
end

-- Writes the outcome of a request down; the reply says whether that failed.
local function remember(memory, outcome)
  return redis.pcall('set', memory, outcome, 'PX', REMEMBERED)
end

-- The same for a step that gives something back or removes it, and so must get through when the server is out of memory: it then
-- refuses what needs memory, but only as the first write of a script. PEXPIRE is a write, and needs none.
local function remember_always(memory, outcome)
  local reply = remember(memory, outcome)
  if failed(reply) then
    redis.call('pexpire', memory, REMEMBERED)
    reply = remember(memory, outcome)
  end
  return reply
end

-- Ends a step: remembers its answer, makes its change (a command), and tells its payload to those who listen. What is
-- nil is left out. The memory comes first, so that no change is made which a copy of the request would make again.
local function conclude(memory, channel, step)
  local reply = (step.gives_back and remember_always or remember)(memory, decimal(step.answer))
  if failed(reply) then
    return reply
  end
  if step.change then
    reply = redis.pcall(unpack(step.change))
    if failed(reply) then
      redis.call('del', memory)
      return reply
    end
  end
  if step.payload then
    redis.pcall(PUBLISH, channel, step.payload)
  end
  return step.answer
end

