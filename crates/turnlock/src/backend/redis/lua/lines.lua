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

-- Does one line. Its outcome: what the step returns, or -1 when it fails for a reason of its own, as for a key of another type.
-- The second value is an error that must be the reply to the whole call. Renewals and signs of life that were done before it
-- stand, and are done again by the next call.
local function line(step, ...)
  local is_done, outcome = pcall(step, ...)
  if is_done and type(outcome) ~= 'table' then
    return outcome
  end
  return -1, server_error(outcome)
end

