-- Runs the acquire step alone. Reply: see lock_acquire_step.lua.
--
-- KEYS[1]  lock
-- ARGV[1]  owner
-- ARGV[2]  target hold count
-- ARGV[3]  lease in milliseconds
return acquire(KEYS[1], ARGV[1], ARGV[2], ARGV[3])
