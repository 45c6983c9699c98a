-- In place of lock_waiters.lua for a fair lock, after fair_queue.lua: only the head of the queue is notified.
local function waiters_channel(channel)
  local head, is_ours = purge(KEYS[1], KEYS[2], KEYS[3], KEYS[4], {})
  if not head then
    return false
  end
  return waiter_channel(channel, head, is_ours)
end

