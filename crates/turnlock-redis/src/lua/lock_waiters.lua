-- Shared by the scripts that notify the waiters of a lock.

-- Returns the channel on which to notify the waiters, or false; and the message. For a fair lock, it removes
-- dead waiters first.
local function waiters_channel(channel)
  return channel ~= '' and channel, '0'
end

