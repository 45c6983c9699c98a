-- Many steps in one call, one after the other.
--
-- KEYS[i]      the lock of step i
-- ARGV[4i-3]   which step: a name of the table below
-- ARGV[4i-2 …] its arguments, as the step alone takes them; three in any case, the last of them empty if it takes fewer
--
-- Reply: a list, one reply a step: what the step alone would have replied, or its error
--
-- Each step is on its own: a key of another type does not spoil the rest. One thing differs from steps alone: on a server
-- that is out of memory, Redis lets a script that has written go on, so an acquire behind a release may be granted.
local steps = { a = acquire, r = release, pa = acquire_plain, pr = release_plain }
local outcomes, i = {}, 1

local function go_on()
  while i <= #KEYS do
    local at = 4 * i
    local outcome = steps[ARGV[at - 3]](KEYS[i], ARGV[at - 2], ARGV[at - 1], ARGV[at])
    -- A list would end at the first nil.
    outcomes[i] = outcome ~= nil and outcome
    i = i + 1
  end
end

-- As long as none fails, this is one protected call for all of them, not one for each.
while i <= #KEYS do
  local is_done, failure = pcall(go_on)
  if not is_done then
    -- A text; up to Redis 6 with the place in the script before it.
    local text = tostring(failure)
    outcomes[i] = redis.error_reply(string.match(text, '^%u+ ') and text or 'ERR ' .. text)
    i = i + 1
  end
end
return outcomes
