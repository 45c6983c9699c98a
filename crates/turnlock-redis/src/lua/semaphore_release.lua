-- Releases permits of a semaphore, and notifies waiters.
--
-- KEYS[1]  number of free permits
-- KEYS[2]  request record of this hold: 'taken k', 'given' (released) or 'void' (cancelled)
-- ARGV[1]  number of permits, if there is no record of it
-- ARGV[2]  1: the acquire is in doubt, or too recent for its record to have expired. Only recorded permits
--          are released, and a hold without a record is cancelled.
--          0: the hold is so old that its record may have expired
-- ARGV[3]  channel on which the new number is published
--
-- Reply: nil  nothing is released: the number does not exist any more, or the hold never started
--        n    released, now or by an earlier copy; n subscribers received the message
--        -2   released, but the user may not publish: no waiter is notified
--
-- Idempotent: a hold that is recorded as released is not released again. Never creates the number: if it was
-- deleted, its permits are lost, also for a new number ('void').
local permits, record, count, in_doubt, channel = KEYS[1], KEYS[2], ARGV[1], ARGV[2] == '1', ARGV[3]

local recorded = redis.call('get', record)
if recorded == 'given' then
  return 0
end
if recorded == 'void' then
  return nil
end
local to_release = recorded and string.match(recorded, '^taken (%d+)$') or not in_doubt and count
local text = redis.call('get', permits)
local is_released = to_release and text

if is_released and not parse_integer(text) then
  return corrupt(NOT_PERMITS)
end
local written = write_record_always(record, is_released and 'given' or 'void')
if failed(written) then
  return written
end
if not is_released then
  return nil
end
local free = redis.pcall('incrby', permits, to_release)
if failed(free) then
  if recorded then
    write_record(record, recorded)
  else
    redis.call('del', record)
  end
  return free
end
return publish(channel, decimal(free))
