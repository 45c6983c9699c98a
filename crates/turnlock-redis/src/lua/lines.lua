-- Shared by the scripts that process many lines.

-- Error codes that concern the server and not a key: it has become a replica, or accepts no writes at all.
-- OOM is not one of them: it refuses some commands only, and lines without those commands succeed.
local SERVER_ERRORS = { 'READONLY', 'MASTERDOWN', 'CLUSTERDOWN', 'LOADING', 'MISCONF', 'NOREPLICAS' }

-- Returns the reply to the whole call if an error concerns the server, else nil. Redis 6 and earlier put the
-- position in the script before the code.
local function server_error(failure)
  local text = type(failure) == 'table' and failure.err or tostring(failure)
  for _, code in ipairs(SERVER_ERRORS) do
    local start = string.find(text, code .. ' ', 1, true)
    if start then
      return redis.error_reply(string.sub(text, start))
    end
  end
  return nil
end

-- The result of a renewal for `lease` ms of a hold with `remaining` ms: 2 if the remaining lease is longer
-- than the lease by more than its margin (a hundredth and 2 ms), else 1. A hold without expiry counts as 1.
local function renewed(remaining, lease)
  if remaining > lease + lease / 100 + 2 and remaining < math.huge then
    return 2
  end
  return 1
end

-- Extends the expiry of a key to `lease` ms, and never shortens it; a lease of 0 leaves it unchanged. Returns
-- the result of the renewal.
local function renew_key(key, lease)
  if lease == 0 then
    return 1
  end
  -- Always a write, even if nothing changes: replicas acknowledge writes only.
  local remaining = redis.call('pttl', key)
  redis.call('pexpire', key, string.format('%.0f', math.max(remaining, lease)))
  return renewed(remaining, lease)
end

-- Runs `step` for each of `count` lines, with the arguments that `arguments(i)` returns, and returns the list
-- of results: -1 for a line that fails on its own, as with a key of the wrong type. An error that concerns
-- the server is the reply to the whole call; renewals and heartbeats before it remain, and the next call
-- repeats them.
--
-- The count is not `#KEYS`: in a cluster a call may have one more key.
local function each_line(count, step, arguments)
  local outcomes = {}
  for i = 1, count do
    local ok, outcome = pcall(step, arguments(i))
    if not ok or type(outcome) == 'table' then
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
