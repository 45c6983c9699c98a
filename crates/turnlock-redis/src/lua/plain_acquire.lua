-- Runs the acquire step alone. Reply: see plain_acquire_step.lua.
--
-- KEYS[1]  lock
-- ARGV[1]  owner
-- ARGV[2]  lease in milliseconds
return acquire_plain(KEYS[1], ARGV[1], ARGV[2])
