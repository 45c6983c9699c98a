-- What the scripts for many lines have in common.

-- The codes of errors that speak of the server and not of a key: it has become a replica, or takes no writes from anybody.
-- OOM is not one of them: it refuses some commands, and a line that needs none of them is done.
local OF_SERVER = { 'READONLY', 'MASTERDOWN', 'CLUSTERDOWN', 'LOADING', 'MISCONF', 'NOREPLICAS' }

-- The reply to the whole call if an error speaks of the server, else nil. Up to Redis 6 the place in the script stands before
-- the code.
local function server_error(failure)
  local text = type(failure) == 'table' and failure.err or tostring(failure)
  for _, code in ipairs(OF_SERVER) do
    local from = string.find(text, code .. ' ', 1, true)
    if from then
      return redis.error_reply(string.sub(text, from))
    end
  end
  return nil
end

-- The outcome of a renewal for `lease` of a hold that had `rest` ms left: 2 when that is longer than the lease by more than
-- its margin, a hundredth and 2 ms, else 1. A rest without end is no number of ms, and left as it is.
local function renewed(rest, lease)
  if rest > lease + lease / 100 + 2 and rest < math.huge then
    return 2
  end
  return 1
end

-- Extends the expiry of a key to `lease` ms, never shortens it; a lease of 0 leaves it alone. The outcome of that renewal.
local function renew_key(key, lease)
  if lease == 0 then
    return 1
  end
  -- A write in any case, also where nothing changes: replicas acknowledge writes, and nothing else.
  local rest = redis.call('pttl', key)
  redis.call('pexpire', key, string.format('%.0f', math.max(rest, lease)))
  return renewed(rest, lease)
end

-- Runs `step` for each of `count` lines, with what `arguments(i)` returns, and collects what the steps return: -1 for a line
-- that fails for a reason of its own, as for a key of another type. An error that speaks of the server is the reply to the
-- whole call. Renewals and signs of life that were done before it stand, and are done again by the next call.
--
-- The count is not `#KEYS`: in a cluster a call may have one key more.
local function each_line(count, step, arguments)
  local outcomes = {}
  for i = 1, count do
    local is_done, outcome = pcall(step, arguments(i))
    if not is_done or type(outcome) == 'table' then
      local failure = server_error(outcome)
      if failure then
        return failure
      end
      outcome = -1
    end
    outcomes[i] = outcome
  end
  return outcomes
end
