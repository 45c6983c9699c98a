-- Shared by the scripts that grant a fair lock, after lock_acquire_step.lua and fair_queue.lua.

-- Grants the free lock to the head of the queue, which leaves the queue. Returns nil, or an error reply.
local function grant_to_head(lock, queue, deadlines, heartbeats, owner, lease)
  local failure = grant(lock, owner, '1', lease, -2, false)
  if failure then
    return failure
  end
  local popped = redis.pcall('lpop', queue)
  if failed(popped) then
    -- A user without permission for it must not leave a lock that blocks the queue.
    redis.call('hdel', lock, owner)
    return popped
  end
  redis.pcall('zrem', deadlines, owner)
  redis.pcall('hdel', heartbeats, owner)
  pcall(reduce_deadlines, queue, deadlines, heartbeats, 0, WAIT_TIMEOUT)
  return nil
end

