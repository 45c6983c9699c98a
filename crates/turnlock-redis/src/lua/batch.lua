-- Runs many steps in one call, in order.
--
-- KEYS[i]           lock of step i
-- ARGV[4i-3]        step: a key of the table below
-- ARGV[4i-2 .. 4i]  its three arguments, as the step function takes them; '' for those that it does not take
--
-- Reply: list of replies, one per step: the reply that the step gives when it runs alone, or its error
--
-- Steps are independent: a key of the wrong type fails only its own step. One difference to steps that run
-- alone: on a server that is out of memory, Redis lets a script continue once it has written, so an acquire
-- after a release may be granted.
local steps = { a = acquire, r = release, pa = acquire_plain, pr = release_plain }
local replies, i = {}, 1

local function run_steps()
  while i <= #KEYS do
    local last = 4 * i
    local reply = steps[ARGV[last - 3]](KEYS[i], ARGV[last - 2], ARGV[last - 1], ARGV[last])
    -- A Lua list ends at the first nil.
    replies[i] = reply ~= nil and reply
    i = i + 1
  end
end

-- While no step fails, one pcall covers all of them.
while i <= #KEYS do
  local ok, failure = pcall(run_steps)
  if not ok then
    -- A string; Redis 6 and earlier put the position in the script before the message.
    local text = tostring(failure)
    replies[i] = redis.error_reply(string.match(text, '^%u+ ') and text or 'ERR ' .. text)
    i = i + 1
  end
end
return replies
