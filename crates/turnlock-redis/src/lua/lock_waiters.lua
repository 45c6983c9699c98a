-- Shared by the scripts that notify the waiters of a lock.

-- Returns the channel on which to notify the waiters, or false.
local function waiters_channel(channel)
  return channel ~= '' and channel
end

