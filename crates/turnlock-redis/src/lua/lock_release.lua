-- Runs the release step alone. Reply: see lock_release_step.lua.
--
-- KEYS[1]  lock
-- ARGV[1]  owner
-- ARGV[2]  target hold count
-- ARGV[3]  channel
return release(KEYS[1], ARGV[1], ARGV[2], ARGV[3])
